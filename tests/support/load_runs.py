"""Set-up that tests of load share: the record of a run, and a few requests."""

from __future__ import annotations

from typing import Any

from loadtests.engine import Options, run_closed
from loadtests.result import About


def about(**changes: Any) -> About:
    """The setup of a run over gRPC, one model in an open loop."""
    given: dict[str, Any] = {
        "mode": "open",
        "protocol": "grpc",
        "address": "localhost:8001",
        "entries": ("digits",),
        "seed": 1,
        "timeout_seconds": 1.0,
        "in_flight": 100,
        "payload_sha256": "0" * 64,
        "started_at": 1.7e9,
        **changes,
    }
    return About(**given)


def send(target, mix, count=20, *, concurrency=4, timeout_seconds=5.0, **options):
    """Send this number of requests in a closed loop, in half a minute at most."""
    return run_closed(
        target,
        mix,
        concurrency=concurrency,
        duration_seconds=max(30.0, timeout_seconds),
        requests=count,
        options=Options(timeout_seconds=timeout_seconds, **options),
    )
