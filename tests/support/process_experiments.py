"""Experiments on a Triton of the tests' own, that leave it as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadtests.chaos import experiment
from loadtests.chaos.primitives.process_refs import ProcessRef
from loadtests.chaos.running.repetition import RunOptions, run

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.chaos.measuring.observations import Evidence

MODEL = "digits_fp32"
MODELS = Path(__file__).parents[2] / "deploy" / "models"
TOOLKIT = "loadtests.chaos.toolkit"
NAME = "process:test"


def provider(func: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "python", "module": TOOLKIT, "func": func, "arguments": arguments}


def injecting(fault: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "type": "action",
        "name": fault["kind"],
        "provider": provider("inject", fault=fault),
        "pauses": {"after": seconds},
    }


def availability(low: float, **more: Any) -> dict[str, Any]:
    return {
        "type": "probe",
        "name": "availability",
        "tolerance": [low, 1.0],
        "provider": provider("availability", window_seconds=0.5),
        **more,
    }


def document(
    target: dict[str, Any], *method: dict[str, Any], low: float = 0.0, **extension: Any
) -> dict[str, Any]:
    """An experiment that is short."""
    return {
        "title": "Test",
        "description": "A test.",
        "steady-state-hypothesis": {
            "title": "Users are served",
            "probes": [availability(low)],
        },
        "method": list(method),
        "rollbacks": [],
        "extensions": [
            {
                "name": "tritonwatch",
                "target": target,
                "load": {
                    "models": [{"model": MODEL}],
                    "profile": {"kind": "poisson", "requests_per_second": 40},
                },
                "timing": {"before_seconds": 1, "after_seconds": 1},
                "recovery": {"window_seconds": 0.5, "hold_seconds": 0.5},
                **extension,
            }
        ],
    }


def of_process(server: EmbeddedTriton) -> dict[str, Any]:
    """A server that is not the experiment's own, as a target."""
    addresses = {"grpc": server.grpc, "http": server.http}
    return {"kind": "process", "called": "test", **addresses}


class Experiments:
    """Makes experiments on the module's server and runs them."""

    def __init__(self, server: EmbeddedTriton, state: Path) -> None:
        self.server = server
        self.state = state

    def document(self, *method: dict[str, Any], **more: Any) -> dict[str, Any]:
        return document(of_process(self.server), *method, **more)

    def run(self, document: dict[str, Any], *allow: str) -> Evidence:
        loaded = experiment.parse(document, "test")
        return run(loaded, RunOptions(allow=allow or (NAME,), state=self.state))[0]

    def well(self) -> bool:
        server = ProcessRef.of(self.server.pid)
        return server is not None and server.state not in {"T", "t"}

    def left(self) -> list[Path]:
        return list(self.state.iterdir()) if self.state.exists() else []


def at(evidence: Evidence, what: str) -> float:
    return next(event.at_seconds for event in evidence.events if event.what == what)


FREEZE = {"kind": "freeze_server"}
