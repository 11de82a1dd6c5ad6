"""Models that are loaded in another way than they should be: not at all, or with a cache."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from exporter.system.processes import arguments_of
from loadtests.chaos.faults import needs
from loadtests.chaos.faults.fault import (
    Fault,
    FaultFailedError,
    FaultRefusedError,
)
from loadtests.chaos.primitives import model_control, programs
from loadtests.chaos.primitives.model_control import ControlError
from loadtests.chaos.primitives.process_refs import new_token

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_SWITCHES = ("--cache-config", "--response-cache-byte-size")


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
            model_control.unload(record["http"], record["model"], wait=False)
        except ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be unloaded: {error}"
            ) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a model that is loaded."""
        try:
            ready = _state(record) == model_control.READY
        except ControlError as error:
            return [f"the server does not say what is loaded: {error}"]
        return [f"model {record['model']!r} is ready"] if ready else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load it, unless there is no server any more."""
        if record.get("every_seconds") is not None:
            # Of 0.1.0, which could unload it again and again.
            programs.stop(record["token"])
        try:
            if (
                model_control.listening(record["http"])
                and _state(record) != model_control.READY
            ):
                model_control.load(record["http"], record["model"])
        except ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be loaded again: {error}; POST "
                f"http://{record['http']}/v2/repository/models/{record['model']}/load"
            ) from error

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a model missing on a live server."""
        try:
            if model_control.listening(record["http"]):
                state = _state(record)
                if state != model_control.READY:
                    return [f"model {record['model']!r} is {state or 'not loaded'}"]
        except ControlError as error:
            return [f"the server does not say what is loaded: {error}"]
        return []


class ResponseCache(Fault):
    """Answers from Triton's response cache: repeated requests do not reach the model.

    Alone it breaks nothing. With kill_stub or erring_model after it, those requests are
    still answered correctly by a model that is dead, and a probe with one fixed input
    reports that all is well.
    """

    kind: Literal["response_cache"] = "response_cache"
    model: str
    """One that is loaded and answers each request once."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the model's configuration as it is, and with the cache on."""
        server = needs.server_of(site)
        if not any(word.startswith(_SWITCHES) for word in arguments_of(server.pid)):
            raise FaultRefusedError(
                f"{site.name} was started without a response cache",
                "start it with --cache-config=local,size=1048576",
            )
        needs.controlled(site, self.model)
        found = model_control.configuration(site.http, self.model)
        if found.get("model_transaction_policy", {}).get("decoupled"):
            raise FaultRefusedError(
                f"model {self.model!r} is decoupled, whose answers are not kept",
                "take another model",
            )
        if _enabled(found):
            raise FaultRefusedError(
                f"model {self.model!r} has its response cache on already",
                "take what breaks the model behind it: kill_stub, erring_model",
            )
        return {
            "model": self.model,
            "http": site.http,
            "asked": str(Path(tempfile.gettempdir()) / f"{new_token()}.asked"),
            "before": json.dumps(found),
            "configuration": json.dumps({**found, "response_cache": {"enable": True}}),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Load the model with that configuration; its files stay as they are."""
        changed = {"config": record["configuration"]}
        # Killed meanwhile, the server may still be about to do what it was asked.
        Path(record["asked"]).touch()
        try:
            model_control.load(record["http"], record["model"], changed)
        except ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be loaded with a response cache: "
                f"{error}"
            ) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a cache that is off."""
        try:
            found = model_control.configuration(record["http"], record["model"])
        except ControlError as error:
            return [f"the server does not say how the model is configured: {error}"]
        return [] if _enabled(found) else ["the response cache is off"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load the model as it was, unless there is no server any more."""
        address, asked = record["http"], Path(record["asked"])
        # Without a configuration Triton would keep the one it was given; when the
        # repository's own changes, that one counts again.
        try:
            if asked.exists() and model_control.listening(address):
                before = {"config": record["before"]}
                model_control.load(address, record["model"], before)
        except ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} still has a response cache: {error}; POST "
                f"http://{address}/v2/repository/models/{record['model']}/load"
            ) from error
        asked.unlink(missing_ok=True)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a live server that may still have the cache on, and the fault's file."""
        address, model = record["http"], record["model"]
        left = []
        if Path(record["asked"]).exists():
            left.append(f"file {record['asked']} is left")
        try:
            if (
                model_control.listening(address)
                and _state(record) == model_control.READY
                and _enabled(model_control.configuration(address, model))
            ):
                left.append(f"model {model!r} still has a response cache")
        except ControlError as error:
            left.append(f"the server does not say how the model is configured: {error}")
        return left


def _state(record: dict[str, Any]) -> str:
    return model_control.states(record["http"]).get(record["model"], "")


def _enabled(configuration: dict[str, Any]) -> bool:
    return bool(configuration.get("response_cache", {}).get("enable"))
