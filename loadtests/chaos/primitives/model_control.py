"""Triton's model repository API over HTTP: index, load, unload."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import TritonError, UnavailableError
from exporter.triton.http import HttpClient
from exporter.triton.http_path import control_path, model_path
from loadtests.errors import FaultFailedError, LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

READY: Final = "READY"
_LOAD_SECONDS: Final = 15.0
_ASK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01
# No model has this name; the answer shows if the server allows model control.
_NOBODY: Final = "tritonwatch-no-such-model"
_FORBIDDEN: Final = "not allowed"


class ControlError(LoadError):
    """The server refused or did not answer a model control request."""


class NobodyThereError(ControlError):
    """No connection to a server."""


@contextlib.contextmanager
def _client(address: str) -> Iterator[HttpClient]:
    client = HttpClient(address, connections=1)
    try:
        yield client
    except TritonError as error:
        # A server may itself answer that something is unavailable.
        answered = str(error).startswith("HTTP ")
        if isinstance(error, UnavailableError) and not answered:
            raise NobodyThereError(f"nothing answers at {address}") from error
        raise ControlError(str(error)) from error
    finally:
        client.close()


def states(address: str) -> dict[str, str]:
    """Return each model's state, "" where it is not loaded; READY if any version is.

    Raises:
        ControlError: no answer.
    """
    with _client(address) as client:
        body = client.post("/v2/repository/index", b"{}", timeout_seconds=_ASK_SECONDS)
    found: dict[str, str] = {}
    try:
        for entry in json.loads(body):
            name, state = str(entry["name"]), str(entry.get("state", ""))
            if found.get(name) != READY:
                found[name] = "" if state == "UNAVAILABLE" else state
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ControlError(f"{address} answers, but is not Triton") from None
    return found


def allowed(address: str) -> bool:
    """Return True if models may be loaded: asks for one that does not exist.

    Raises:
        ControlError: no answer.
    """
    try:
        _post(address, _NOBODY, "unload", _ASK_SECONDS)
    except NobodyThereError:
        raise
    except ControlError as error:
        return _FORBIDDEN not in str(error)
    return True


def listening(address: str) -> bool:
    """Return True if a process accepts connections there; a frozen server does.

    Raises:
        ControlError: a process does, and does not answer.
    """
    try:
        with _client(address) as client:
            client.get("/v2/health/live", timeout_seconds=_ASK_SECONDS)
    except NobodyThereError:
        return False
    return True


def load(address: str, model: str) -> None:
    """Load the model, again if its files have changed, and wait until it is ready.

    Raises:
        ControlError: it could not be loaded in time, with the reason.
    """
    deadline = time.monotonic() + _LOAD_SECONDS
    _post(address, model, "load", _LOAD_SECONDS)
    while (found := states(address).get(model, "")) != READY:
        if time.monotonic() > deadline:
            raise ControlError(
                f"timeout: model {model!r} is {found or 'not loaded'}, not {READY}"
            )
        time.sleep(_POLL_SECONDS)


def unload(address: str, model: str) -> None:
    """Unload the model; requests are refused on return, while others may still end.

    Raises:
        ControlError: it could not be unloaded, with the reason.
    """
    _post(address, model, "unload", _LOAD_SECONDS)


def load_again(address: str, model: str, problem: str) -> None:
    """Load the model; do nothing where no server listens.

    Raises:
        FaultFailedError: `problem`, the reason, and how to load it by hand.
    """
    try:
        if listening(address):
            load(address, model)
    except ControlError as error:
        raise FaultFailedError(
            f"{problem}: {error}; POST http://{address}{control_path(model)}/load"
        ) from error


def configuration(address: str, model: str) -> dict[str, Any]:
    """Return the server's configuration of the model.

    Raises:
        ControlError: no answer, or no such model.
    """
    with _client(address) as client:
        path = f"{model_path(model)}/config"
        body = client.get(path, timeout_seconds=_ASK_SECONDS)
    try:
        found = dict(json.loads(body))
    except (ValueError, TypeError):
        raise ControlError(f"{address} answers, but is not Triton") from None
    return found


def _post(address: str, model: str, action: str, timeout_seconds: float) -> None:
    with _client(address) as client:
        path = f"{control_path(model)}/{action}"
        client.post(path, b"{}", timeout_seconds=timeout_seconds)
