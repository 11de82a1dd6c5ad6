"""An objective for the latency of a model that can be slow, and traffic that breaks it."""

from __future__ import annotations

import contextlib
import time

import numpy as np
from production import Production

from exporter.errors import TritonError
from exporter.triton.protocol_types import InferRequest

MODEL = "sleepy"
OBJECTIVE = 0.95
THRESHOLD_SECONDS = 0.05
SLOS = [
    {
        "kind": "latency",
        "name": "sleepy-latency",
        "models": MODEL,
        "threshold_seconds": THRESHOLD_SECONDS,
        "objective_ratio": OBJECTIVE,
        "source": "requests",
    }
]


def tracing_arguments(tap_port: int) -> tuple[str, ...]:
    """Those of a Triton that sends a span of every request to that port, soon."""
    return (
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url=http://127.0.0.1:{tap_port}/v1/traces",
        "--trace-config=opentelemetry,bsp_schedule_delay=500",
        "--trace-config=rate=1",
        "--trace-config=level=TIMESTAMPS",
    )


class Load(Production):
    """One request after the other, with a delay that can change; keeps when each was
    answered, and whether late."""

    def __init__(self, grpc: str) -> None:
        super().__init__(grpc, pause_seconds=0.05)
        self.delay_ms = 1
        self.answered: list[tuple[float, bool]] = []

    def ask(self, user: int) -> None:  # noqa: ARG002 - there is one
        x = {"x": np.ones(1, np.float32)}
        request = InferRequest(
            MODEL, "", "load", x, {"x": "FP32"}, {"delay_ms": self.delay_ms}
        )
        started = time.time()
        with contextlib.suppress(TritonError):
            self.client.infer(request, timeout_seconds=5)
            now = time.time()
            self.answered.append((now, now - started > THRESHOLD_SECONDS))
