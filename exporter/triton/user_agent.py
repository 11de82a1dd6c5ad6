"""User agents of this process's requests, also for the access logs of proxies."""

from __future__ import annotations

from typing import Final

USER_AGENT: Final = "tritonwatch-sidecar"
