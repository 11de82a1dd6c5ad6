"""Which operation a path of Triton's HTTP interface means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fake_triton.behaviours import Status
from fake_triton.repository import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fake_triton.journal import Operation

NO_SUCH_PATH: Final = Status("NOT_FOUND", 404, "Not Found")
METHOD_NOT_ALLOWED: Final = Status("UNIMPLEMENTED", 405, "Method Not Allowed")

_SERVER: Final[Mapping[tuple[str, ...], tuple[str, Operation]]] = {
    (): ("GET", "server_metadata"),
    ("health", "live"): ("GET", "server_live"),
    ("health", "ready"): ("GET", "server_ready"),
}
_MODEL: Final[Mapping[tuple[str, ...], tuple[str, Operation]]] = {
    (): ("GET", "model_metadata"),
    ("ready",): ("GET", "model_ready"),
    ("config",): ("GET", "model_config"),
    ("stats",): ("GET", "statistics"),
    ("infer",): ("POST", "infer"),
}


@dataclass(frozen=True, slots=True)
class Route:
    """What a request is about."""

    operation: Operation
    model: str = ""
    version: str = ""


def route(method: str, target: str) -> Route:
    """The operation, model and version; RefusedError with 404 or 405.

    Triton 2.51 takes the model name from the path as it stands, escapes and all.
    """
    path = target.partition("?")[0].removeprefix("/")
    parts = tuple(path.split("/"))
    if parts[0] != "v2":
        raise RefusedError(NO_SUCH_PATH)
    rest = parts[1:]
    if rest in _SERVER:
        return Route(_allowed(method, _SERVER[rest]))
    match rest:
        case ("models", model, *others) if model:
            version, tail = "", tuple(others)
        case _:
            raise RefusedError(NO_SUCH_PATH)
    if tail[:1] == ("versions",) and len(tail) > 1:
        version, tail = tail[1], tail[2:]
    if tail not in _MODEL or (version and not version.isdecimal()):
        raise RefusedError(NO_SUCH_PATH)
    return Route(_allowed(method, _MODEL[tail]), model, version)


def _allowed(method: str, entry: tuple[str, Operation]) -> Operation:
    methods, operation = entry
    if method not in methods.split():
        raise RefusedError(METHOD_NOT_ALLOWED)
    return operation
