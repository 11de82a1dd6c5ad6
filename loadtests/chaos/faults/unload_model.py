"""A model is unloaded under load, once or again and again with a load after each.

Triton serves what is under way, then refuses; a load takes as long as the model's start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from loadtests.chaos.faults import needs
from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.primitives import agents, model_control
from loadtests.chaos.primitives.processes import new_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site


class UnloadModel(Fault):
    """Requests for it are refused, while the server is live and ready."""

    strength: ClassVar[str | None] = "every_seconds"

    kind: Literal["unload_model"] = "unload_model"
    model: str
    """One that is loaded."""
    every_seconds: float | None = Field(default=None, ge=0.1, le=3600.0)
    """How long it stays loaded between two unloads; left out, it is unloaded once."""
    longest_seconds: float = Field(default=600.0, gt=0.0, le=86_400.0)
    """After which the unloads end by themselves."""

    def require(self, site: Site) -> None:
        """A server that loads on demand, with the model loaded."""
        needs.controlled(site, self.model)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Where the model is loaded, and the token of what unloads it."""
        self.require(site)
        return {
            "token": new_token(),
            "http": site.http,
            "model": self.model,
            "every_seconds": self.every_seconds,
            "longest_seconds": self.longest_seconds,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Unload it; requests are refused when this returns."""
        if record["every_seconds"] is None:
            _unload(record, wait=False)
            return
        agents.start(
            record["token"],
            __name__,
            record,
            longest_seconds=record["longest_seconds"],
        )

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether it is loaded, or nothing unloads it."""
        if record["every_seconds"] is not None:
            at_work = agents.running(record["token"])
            return [] if at_work else ["what unloads the model has ended"]
        try:
            state = model_control.states(record["http"]).get(record["model"], "")
        except model_control.ControlError as error:
            return [f"the server does not say what is loaded: {error}"]
        ready = state == model_control.READY
        return [f"model {record['model']!r} is ready"] if ready else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load it, unless there is no server any more."""
        agents.stop(record["token"])
        try:
            if not model_control.listening(record["http"]):
                return
            state = model_control.states(record["http"]).get(record["model"], "")
            if state != model_control.READY:
                model_control.load(record["http"], record["model"])
        except model_control.ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be loaded again: {error}; POST "
                f"http://{record['http']}/v2/repository/models/{record['model']}/load"
            ) from error

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Return what unloads it, and a model that a live server does not have."""
        left = agents.left(record["token"])
        try:
            if model_control.listening(record["http"]):
                state = model_control.states(record["http"]).get(record["model"], "")
                if state != model_control.READY:
                    left.append(f"model {record['model']!r} is {state or 'not loaded'}")
        except model_control.ControlError as error:
            left.append(f"the server does not say what is loaded: {error}")
        return left


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Unload and load, until somebody ends it."""
    _unload(settings)
    ready()
    while True:
        model_control.load(settings["http"], settings["model"])
        time.sleep(settings["every_seconds"])
        _unload(settings)


def _unload(record: dict[str, Any], *, wait: bool = True) -> None:
    try:
        model_control.unload(record["http"], record["model"], wait=wait)
    except model_control.ControlError as error:
        raise FaultFailedError(
            f"model {record['model']!r} could not be unloaded: {error}"
        ) from error
