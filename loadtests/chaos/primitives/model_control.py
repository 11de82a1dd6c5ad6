"""Triton's model repository API over HTTP: index, load, unload."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import TritonError, UnavailableError
from exporter.triton.http import HttpClient
from exporter.triton.http_path import control_path, model_path
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

READY: Final = "READY"
LOAD_SECONDS: Final = 15.0
_ASK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01
# No model is called so: whether the server refuses to hear of it at all is asked.
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
        if _no_connection(error):
            raise NobodyThereError(f"nothing answers at {address}") from error
        raise ControlError(str(error)) from error
    finally:
        client.close()


def states(address: str) -> dict[str, str]:
    """Each model's state, "" where it is not loaded; READY if any version is.

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
    """Return whether models may be loaded; asks for one that does not exist.

    Raises:
        ControlError: no answer.
    """
    try:
        with _client(address) as client:
            _post(client, _NOBODY, "unload", _ASK_SECONDS)
    except NobodyThereError:
        raise
    except ControlError as error:
        return _FORBIDDEN not in str(error)
    return True


def listening(address: str) -> bool:
    """Return whether a process accepts connections there; a frozen server does.

    Raises:
        ControlError: somebody does, and does not answer.
    """
    try:
        with _client(address) as client:
            client.get("/v2/health/live", timeout_seconds=_ASK_SECONDS)
    except NobodyThereError:
        return False
    return True


def load(
    address: str,
    model: str,
    *,
    timeout_seconds: float = LOAD_SECONDS,
) -> None:
    """Load the model, again if its files have changed, and wait until it is ready.

    Raises:
        ControlError: it could not be loaded in time; says why.
    """
    deadline = time.monotonic() + timeout_seconds
    with _client(address) as client:
        _post(client, model, "load", timeout_seconds)
    _wait(address, model, READY, deadline)


def unload(
    address: str,
    model: str,
    *,
    timeout_seconds: float = LOAD_SECONDS,
    wait: bool = True,
) -> None:
    """Unload the model, and by default wait until it is completely unloaded.

    Raises:
        ControlError: it could not be unloaded in time; says why.
    """
    deadline = time.monotonic() + timeout_seconds
    with _client(address) as client:
        _post(client, model, "unload", timeout_seconds)
    if wait:
        _wait(address, model, "", deadline)


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


def _wait(address: str, model: str, wanted: str, deadline: float) -> None:
    while (found := states(address).get(model, "")) != wanted:
        if time.monotonic() > deadline:
            raise ControlError(
                f"timeout: model {model!r} is {found or 'not loaded'}, not "
                f"{wanted or 'unloaded'}"
            )
        time.sleep(_POLL_SECONDS)


def _post(client: HttpClient, model: str, action: str, timeout_seconds: float) -> None:
    path = f"{control_path(model)}/{action}"
    client.post(path, b"{}", timeout_seconds=timeout_seconds)


def _no_connection(error: TritonError) -> bool:
    # A server may say itself that something is unavailable.
    return isinstance(error, UnavailableError) and not str(error).startswith("HTTP ")
