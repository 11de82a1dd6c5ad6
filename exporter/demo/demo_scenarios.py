"""Scenarios of the demo: faults, their times, and the pages that show them."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from exporter.errors import TritonError
from exporter.system.processes import arguments_of
from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model
from exporter.triton.http import HttpClient
from exporter.triton.http_path import control_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from exporter.demo.demo_traffic import Traffic
    from exporter.triton.embedded import EmbeddedTriton, ModelControl

LIAR: Final = "digits_fp32"
DEAD: Final = "digits_int8"
HEALTHY_WITHIN_SECONDS: Final = 30.0
"""Longest wait for correct answers before a scene that is due begins."""

_CONTROL_SECONDS: Final = 30.0
_CROWD_SECONDS: Final = 30.0
_REPAIR_SECONDS: Final = 60.0
_ROLL_BACK_SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True)
class Act:
    """A fault of the demo. It starts after some seconds, once answers were correct."""

    after_seconds: float
    play: Callable[[], str]
    """Start the fault; returns the text to print."""

    def is_due(self, elapsed_seconds: float, *, golden_was_correct: bool) -> bool:
        """Return whether to play it now."""
        beyond = elapsed_seconds - self.after_seconds
        return beyond >= (0.0 if golden_was_correct else HEALTHY_WITHIN_SECONDS)


@dataclass(frozen=True, slots=True)
class Stage:
    """The running parts that a scene acts on."""

    triton: EmbeddedTriton
    traffic: Traffic
    page: str
    """URL of the status page."""

    def hint(self, metric: str) -> str:
        """Return the page and metric that show the fault, as a line to print."""
        return f"    see {self.page} and {metric}"


class Scene:
    """The demo as it is, and its drift: clients whose patients are older ones after a while.

    `models` is the demo's own repository, `folder` a place for what the scene writes.
    """

    model_control: ClassVar[ModelControl] = "none"
    full_tracing_seconds: ClassVar[float] = 40.0
    """Time for which every request is traced, so that each model's p99 is known soon."""

    def __init__(self, models: Path, folder: Path) -> None:
        self.models = models
        self.folder = folder
        self.repository = models

    def prepare(self) -> None:
        """Write the files that Triton needs when it starts."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """More arguments of Triton."""
        return ("--load-model=*",) if self.model_control == "explicit" else ()

    def settings(self) -> dict[str, Any]:
        """Entries to add to the lists of the sidecar's configuration."""
        return {}

    def acts(self, stage: Stage, after_seconds: float) -> Sequence[Act]:
        """Return the faults in the order in which they start."""

        def grow_older() -> str:
            stage.traffic.grow_older()
            return (
                "--- from now on diabetes gets patients of 60 years and older only\n"
                + stage.hint("triton_feature_drift_alarm")
            )

        return [Act(after_seconds, grow_older)]


class _OwnCopy(Scene):
    """A repository of its own, with a model that can be made faulty."""

    def prepare(self) -> None:
        """Copy the models; the faulty one is correct at first."""
        self.repository = self.folder / "models"
        shutil.copytree(
            self.models, self.repository, ignore=lambda _, names: {LIAR} & set(names)
        )
        write_faulty_model(self.repository, LIAR, source=self.models / LIAR)


class SilentFailure(_OwnCopy):
    """A model starts to return wrong answers."""

    def acts(self, stage: Stage, after_seconds: float) -> Sequence[Act]:
        """Each class's score at its neighbour's place."""

        def lie() -> str:
            set_fault(self.repository, LIAR, Fault("shifted_class"))
            return (
                f"--- from now on {LIAR} gives each digit's score to the next: fast, confident and wrong\n"
                + stage.hint("triton_golden_failing")
            )

        return [Act(after_seconds, lie)]


class Overload(Scene):
    """More clients than a model has capacity for."""

    def acts(self, stage: Stage, after_seconds: float) -> Sequence[Act]:
        """A crowd comes, and leaves."""

        def come() -> str:
            stage.traffic.crowd(clients=8, delay_ms=50, seconds=_CROWD_SECONDS)
            return (
                f"--- for {_CROWD_SECONDS:.0f} s eight more clients ask slow, 50 ms of work each:"
                " requests queue\n"
                + stage.hint('triton_slo_burn_rate{slo="slow-latency"}')
            )

        def leave() -> str:
            return "--- the crowd has left; p99 keeps it for five minutes, the queue is empty"

        return [Act(after_seconds, come), Act(after_seconds + _CROWD_SECONDS, leave)]


class DeadBackend(Scene):
    """A model's backend process dies, but Triton still reports the model as ready."""

    model_control = "explicit"

    def acts(self, stage: Stage, after_seconds: float) -> Sequence[Act]:
        """Kill it; repair it a minute later."""

        def kill() -> str:
            for pid in _backend_pids(stage.triton, DEAD):
                os.kill(pid, signal.SIGKILL)
            return (
                f"--- the backend process of {DEAD} was killed; Triton still calls it ready\n"
                + stage.hint("triton_model_serving")
            )

        def repair() -> str:
            _control(stage.triton, DEAD, "unload", "load")
            return (
                f"--- {DEAD} is unloaded and loaded again: a load alone repairs nothing"
            )

        return [Act(after_seconds, kill), Act(after_seconds + _REPAIR_SECONDS, repair)]


class SlowRollout(_OwnCopy):
    """A new version of a model is slower, and gets half of the requests."""

    model_control = "explicit"
    full_tracing_seconds = 150.0

    def settings(self) -> dict[str, Any]:
        """Compare production's own answers of both versions."""
        rollout = {
            "name": "rollout",
            "mode": "ab",
            "champion": f"{LIAR}:1",
            "challenger": f"{LIAR}:2",
            # Each metric would take a share of the error rate: one is decided sooner. A
            # mean would wait for 2,000 requests to each, which take four minutes here.
            "metrics": ["latency_p50"],
        }
        return {"comparisons": [rollout]}

    def acts(self, stage: Stage, after_seconds: float) -> Sequence[Act]:
        """Roll version 2 out, and back."""

        def roll_out() -> str:
            model = self.repository / LIAR
            shutil.copytree(model / "1", self.folder / "new")
            (self.folder / "new").rename(model / "2")
            set_fault(
                self.repository, LIAR, Fault("slow", factor=1, delay_ms=6), version="2"
            )
            with (model / "config.pbtxt").open("a", encoding="utf-8") as config:
                config.write("version_policy { all {} }\n")
            _control(stage.triton, LIAR, "load")
            stage.traffic.canary(LIAR, "2", 0.5)
            return (
                f"--- version 2 of {LIAR} takes half of the requests; it is 6 ms slower. The verdict\n"
                "    takes one to two minutes and is valid whenever it is read\n"
                + stage.hint('triton_comparison_verdict{comparison="rollout"}')
            )

        def roll_back() -> str:
            stage.traffic.canary(LIAR, "1", 1.0)
            return f"--- every request to {LIAR} goes to version 1 again"

        return [
            Act(after_seconds, roll_out),
            Act(after_seconds + _ROLL_BACK_SECONDS, roll_back),
        ]


SCENES: Final[dict[str, type[Scene]]] = {
    "silent-failure": SilentFailure,
    "drift": Scene,
    "overload": Overload,
    "dead-backend": DeadBackend,
    "slow-rollout": SlowRollout,
}


def _backend_pids(triton: EmbeddedTriton, model: str) -> list[int]:
    return [
        pid
        for pid in triton.stub_pids()
        if any(f"/{model}/" in argument for argument in arguments_of(pid))
    ]


def _control(triton: EmbeddedTriton, model: str, *what: str) -> None:
    """Unload or load a model in the background."""

    def ask() -> None:
        client = HttpClient(triton.http)
        try:
            for one in what:
                client.post(
                    f"{control_path(model)}/{one}",
                    b"{}",
                    timeout_seconds=_CONTROL_SECONDS,
                )
        except TritonError:
            # The sidecar reports a model that is not there.
            return
        finally:
            client.close()

    threading.Thread(target=ask, name="control", daemon=True).start()
