"""Parses one line of an access log into an inference request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from exporter.taps.foreign_json import ForeignJsonError, parse
from exporter.triton import USER_AGENT

if TYPE_CHECKING:
    from exporter.access.client_outcomes import ClientOutcome

GRPC_PATH: Final = "/inference.GRPCInferenceService/ModelInfer"
_HTTP_PATH: Final = re.compile(
    r"/v2/models/(?P<model>[^/?]{1,256})(/versions/(?P<version>[^/?]{1,256}))?"
    r"/(infer|generate|generate_stream)(\?.*)?",
    re.DOTALL,
)
_ABANDONED: Final = frozenset({0, 499})
"""Envoy's and nginx's status of a request whose client left before the answer."""
_CANCELLED: Final = 1
"""CANCELLED of gRPC: only a client cancels."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """The outcome of one inference request. `version` is "" where the client sent none."""

    model: str
    version: str
    outcome: ClientOutcome
    own: bool


def logged_request(line: bytes, most_bytes: int) -> LoggedRequest | None:
    """Return the inference request that `line` logs, or None for another request.

    Raises:
        ForeignJsonError: it is not a line of the shipped formats.
    """
    entry = parse(line, most_bytes)
    if not isinstance(entry, dict):
        raise ForeignJsonError("the line is not a JSON object")
    path, agent = _text(entry, "path"), _text(entry, "agent")
    if path == GRPC_PATH:
        model, version = _text(entry, "model"), _text(entry, "version")
        outcome = _grpc_outcome(entry)
    else:
        match = _HTTP_PATH.fullmatch(path)
        if match is None:
            return None
        model, version = unquote(match["model"]), unquote(match["version"] or "")
        outcome = _http_outcome(_number(entry, "status"))
    return LoggedRequest(model, version, outcome, agent.startswith(USER_AGENT))


def _http_outcome(status: int | None) -> ClientOutcome:
    if status is None or status in _ABANDONED:
        return "abandoned"
    return "failure" if status >= HTTPStatus.BAD_REQUEST else "success"


def _grpc_outcome(entry: dict[str, Any]) -> ClientOutcome:
    status = _number(entry, "grpc_status")
    if status == 0:
        return "success"
    if status == _CANCELLED:
        return "abandoned"
    if status is None:
        # Without one it ended before its trailers, or at the proxy itself.
        return (
            "failure"
            if _http_outcome(_number(entry, "status")) == "failure"
            else "abandoned"
        )
    return "failure"


def _text(entry: dict[str, Any], key: str) -> str:
    """A text of the line; "" for what is absent, which Envoy writes as null or "-"."""
    value = entry.get(key)
    if value is None or value == "-":
        return ""
    if not isinstance(value, str):
        raise ForeignJsonError(
            f"found {type(value).__name__} for {key!r}; want a string"
        )
    return value


def _number(entry: dict[str, Any], key: str) -> int | None:
    value = entry.get(key)
    if value is None or value == "-":
        return None
    if isinstance(value, str) and value.isdecimal():
        return int(value[:9])
    if type(value) is not int:
        raise ForeignJsonError(
            f"found {type(value).__name__} for {key!r}; want a number"
        )
    return value
