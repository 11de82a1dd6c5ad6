"""Blindness: Triton's response cache begins to answer for a model.

Alone it breaks nothing. With kill_stub or erring_model after it, requests that were seen
before go on being answered rightly by a model that is dead, and whoever probes with one
fixed input is told that all is well.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loadtests.chaos.faults import needs
from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.backends import command_line
from loadtests.chaos.primitives.processes import new_token

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_SWITCHES = (b"--cache-config", b"--response-cache-byte-size")


class ResponseCache(Fault):
    """Requests that were seen before no longer reach the model."""

    kind: Literal["response_cache"] = "response_cache"
    model: str
    """One that is loaded and answers each request once."""

    def require(self, site: Site) -> None:
        """A server that was started with a cache and loads on demand."""
        server = needs.server_of(site)
        if not any(word.startswith(_SWITCHES) for word in command_line(server.pid)):
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

    def prepare(self, site: Site) -> dict[str, Any]:
        """The model's configuration as it is, and with the cache on."""
        self.require(site)
        found = model_control.configuration(site.http, self.model)
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
        except model_control.ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} could not be loaded with a response cache: "
                f"{error}"
            ) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether the server says that the cache is off."""
        try:
            found = model_control.configuration(record["http"], record["model"])
        except model_control.ControlError as error:
            return [f"the server does not say how the model is configured: {error}"]
        return [] if _enabled(found) else ["the response cache is off"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load the model as it was, unless there is no server any more."""
        # Without a configuration Triton would keep the one it was given; when the
        # repository's own changes, that one counts again.
        try:
            if Path(record["asked"]).exists() and model_control.listening(
                record["http"]
            ):
                before = {"config": record["before"]}
                model_control.load(record["http"], record["model"], before)
        except model_control.ControlError as error:
            raise FaultFailedError(
                f"model {record['model']!r} still has a response cache: {error}; POST "
                f"http://{record['http']}/v2/repository/models/{record['model']}/load"
            ) from error
        Path(record["asked"]).unlink(missing_ok=True)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Return whether a live server may still have the cache on and the fault's file."""
        left = []
        if Path(record["asked"]).exists():
            left.append(f"file {record['asked']} is left")
        try:
            on = _on(record)
        except model_control.ControlError as error:
            left.append(f"the server does not say how the model is configured: {error}")
            return left
        if on:
            left.append(f"model {record['model']!r} still has a response cache")
        return left


def _on(record: dict[str, Any]) -> bool:
    address, model = record["http"], record["model"]
    if not model_control.listening(address):
        return False
    if model_control.states(address).get(model) != model_control.READY:
        return False
    return _enabled(model_control.configuration(address, model))


def _enabled(configuration: dict[str, Any]) -> bool:
    return bool(configuration.get("response_cache", {}).get("enable"))
