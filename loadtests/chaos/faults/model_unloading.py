"""A model that is not loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loadtests.chaos.faults import needs
from loadtests.chaos.faults.fault import Fault
from loadtests.chaos.primitives import model_control, programs
from loadtests.chaos.primitives.model_control import ControlError
from loadtests.errors import FaultFailedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site


class UnloadModel(Fault):
    """An unloaded model: its requests are refused, while the server is live and ready.

    Triton serves what is under way, then refuses; a load takes as long as the model's
    start.
    """

    kind: Literal["unload_model"] = "unload_model"
    model: str
    """One that is loaded."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the server of the model."""
        needs.controlled(site, self.model)
        return {"http": site.http, "model": self.model}

    def inject(self, record: dict[str, Any]) -> None:
        """Unload it; requests are refused when this returns."""
        try:
            model_control.unload(record["http"], record["model"])
        except ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be unloaded: {error}"
            ) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a model that is loaded."""
        try:
            ready = _state(record) == model_control.READY
        except ControlError as error:
            return [f"the server does not list its loaded models: {error}"]
        return [f"model {record['model']!r} is ready"] if ready else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load it, unless the server has ended."""
        if record.get("every_seconds") is not None:
            # A record of 0.1.0, which could unload it repeatedly.
            programs.stop(record["token"])
        if cls.residue(record):
            model = record["model"]
            problem = f"model {model!r} could not be loaded again"
            model_control.load_again(record["http"], model, problem)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a model missing on a live server."""
        try:
            if model_control.listening(record["http"]):
                state = _state(record)
                if state != model_control.READY:
                    return [f"model {record['model']!r} is {state or 'not loaded'}"]
        except ControlError as error:
            return [f"the server does not list its loaded models: {error}"]
        return []


def _state(record: dict[str, Any]) -> str:
    return model_control.states(record["http"]).get(record["model"], "")
