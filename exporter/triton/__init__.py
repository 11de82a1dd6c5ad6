"""Clients of Triton, and a server of our own."""

from __future__ import annotations

from typing import Final

USER_AGENT: Final = "tritonwatch-sidecar"
"""User agent of this process's requests, also in the access logs of proxies."""
