"""How requests of this process name themselves, in the access logs of proxies too."""

from __future__ import annotations

from typing import Final

USER_AGENT: Final = "tritonwatch-sidecar"
