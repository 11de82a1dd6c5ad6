"""Energy that tritonwatch attributes to models on a real board, and that each takes alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpu_board import Mixed, Sender, Span, measured
from gpu_models import MODELS
from sidecars import Page, SidecarProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporter.triton.embedded import EmbeddedTriton

WINDOW_SECONDS: Final = 2
_REST_SECONDS: Final = 4.0
_SETTLED: Final = 2 * WINDOW_SECONDS + 2.0
"""Time after which the energy of what ran is divided."""


def configuration(triton: EmbeddedTriton) -> dict[str, Any]:
    """A sidecar that reads NVML and knows the models' operations."""
    return {
        "target": {"grpc": triton.grpc, "http": triton.http, "metrics": triton.metrics},
        "listen": {"address": "127.0.0.1", "port": 0},
        "power": {
            "window_seconds": WINDOW_SECONDS,
            "rate_window_seconds": 12,
            "sources": [{"kind": "nvml"}],
        },
        "cost": {
            "models": {
                name: {"flops_per_inference": work.flops, "precision": "fp32"}
                for name, work in MODELS.items()
                if work.flops
            }
        },
    }


@dataclass(frozen=True)
class Alone:
    """One model that nothing else ran beside."""

    joules: float
    """Energy above idle of one inference."""
    watts: float
    """Power of the board meanwhile."""
    idle_watts: float
    per_second: float
    page: Page


@dataclass(frozen=True)
class Together:
    """A time of mixed load: the sidecar's figures of each model, and the board's."""

    inferences: dict[str, float]
    attributed: dict[str, float]
    errors: dict[str, float | None]
    board: Span
    board_counted: float
    """Energy of the board that the sidecar counted meanwhile."""
    page: Page


class Scenario:
    """A board, a Triton with MODELS on it, and a sidecar beside it."""

    def __init__(self, board: Any, triton: EmbeddedTriton, folder: Path) -> None:
        self.board = board
        self.sender = Sender(triton.grpc)
        self.sidecar = SidecarProcess(configuration(triton), folder)
        self.sidecar.wait_listening()

    def close(self) -> None:
        self.sidecar.close()
        self.sender.close()

    def idle(self, seconds: float = _REST_SECONDS) -> Span:
        """The board while only the sidecar's probes run."""
        return measured(self.board, lambda: time.sleep(seconds))

    def alone(self, model: str, seconds: float) -> Alone:
        """One request after the other for this model."""
        for _ in range(10):
            self.sender.infer(model)
        before, sent = self.idle(), self.sender.sent.get(model, 0)
        span = measured(self.board, lambda: self.sender.steadily(model, seconds))
        count = self.sender.sent[model] - sent
        page = self.sidecar.page()
        after = self.idle()
        idle = (before.watts + after.watts) / 2
        joules = (span.joules - idle * span.seconds) / count
        return Alone(joules, span.watts, idle, count / span.seconds, page)

    def together(self, load: Callable[[Mixed], None], mixed: Mixed) -> Together:
        """Mixed load, until its energy was divided."""
        time.sleep(_SETTLED)
        before = self.sidecar.page()

        def run() -> None:
            load(mixed)
            time.sleep(_SETTLED)

        board = measured(self.board, run)
        after = self.sidecar.page()

        def rise(name: str, **labels: str) -> float:
            return after.sum(name, **labels) - before.sum(name, **labels)

        return Together(
            {m: rise("triton_inferences_total", model=m) for m in mixed.models},
            {
                m: rise("triton_model_energy_joules_total", model=m, boundary="gpu")
                for m in mixed.models
            },
            {
                m: after.value(
                    "triton_model_energy_share_error_ratio", model=m, boundary="gpu"
                )
                for m in mixed.models
            },
            board,
            rise("triton_gpu_energy_joules_total"),
            after,
        )
