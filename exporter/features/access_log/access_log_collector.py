"""Counts how requests ended for their clients, as the access logs of proxies have it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from pydantic import Field

from exporter import catalogue
from exporter.access.client_outcomes import ClientOutcomes
from exporter.access.collector_base import Access, CollectorSettings
from exporter.errors import PartialResultError, SourceError
from exporter.samples import Sample
from exporter.system.followed_lines import MAX_LINE_BYTES, LineFollower
from exporter.taps.foreign_json import ForeignJsonError, parse
from exporter.triton import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from exporter.access.client_outcomes import ClientOutcome
    from exporter.samples import AnySample

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
    # nginx writes the bytes of a header as they are.
    entry = parse(line.decode("utf-8", "replace").encode(), most_bytes)
    if not isinstance(entry, dict) or "path" not in entry:
        raise ForeignJsonError("the line is not a JSON object with a path")
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


SOURCE: Final = "access_log"
_SHARE_OF_DEADLINE: Final = 0.5
"""Share of a run's deadline for reading; the rest of a log is read in the next run."""


class AccessLogSettings(CollectorSettings):
    """Request outcomes as clients see them, from the access logs of nginx or Envoy.

    The proxies write one JSON object a line: `deploy/nginx`, `deploy/envoy`.
    """

    kind: Literal["access_log"] = "access_log"
    paths: tuple[Path, ...] = Field(
        default=(Path("/var/log/nginx/tritonwatch.log"),), min_length=1, max_length=16
    )
    """Paths of the logs. Each is read from its current end and followed through
    rotation."""
    owner: bool = Field(default=False)
    """Free the disk space of lines that have been read, as an alternative to log
    rotation: the file keeps its size but uses no disk space. Needs write permission.
    """
    max_run_bytes: int = Field(default=64 << 20, ge=1 << 20, le=1 << 30)
    """Maximum number of bytes read from each log per run; the rest is read in the next
    run."""

    def build(self, access: Access) -> AccessLogCollector:
        """The collector."""
        return AccessLogCollector(self, access)


class AccessLogCollector:
    """Follows the logs and counts the outcomes of their requests."""

    def __init__(self, settings: AccessLogSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._followers = [
            LineFollower(path, access.clock, owner=settings.owner)
            for path in settings.paths
        ]
        self._foreign: set[Path] = set()
        """Logs whose latest lines are all malformed."""
        self._outcomes = ClientOutcomes(SOURCE, access)
        self._lines: Counter[str] = Counter(
            dict.fromkeys(("counted", "own", "other", "unknown_model", "malformed"), 0)
        )

    def collect(self) -> Sequence[AnySample]:
        """Read what was appended.

        Raises:
            SourceError: no log can be read.
            PartialResultError: some cannot, or have another format.
        """
        seconds = self._settings.deadline_seconds * _SHARE_OF_DEADLINE
        until = self._access.clock() + seconds
        # Until the models are known, lines stay where they are.
        known = bool(self._access.board.current.models)
        most_bytes = self._settings.max_run_bytes if known else 0
        unreadable: list[str] = []
        for follower in self._followers:
            try:
                for lines in filter(None, follower.poll(until, most_bytes)):
                    self._foreign.discard(follower.path)
                    if self._count(lines) == {"malformed"}:
                        self._foreign.add(follower.path)
            except SourceError as error:
                unreadable.append(str(error))
        samples = [*self._outcomes.samples(), *self._line_samples()]
        if len(unreadable) == len(self._followers):
            raise SourceError("; ".join(unreadable))
        unreadable += (
            f"{path}: no recent line has a format of deploy/nginx or deploy/envoy"
            for path in sorted(self._foreign)
        )
        if unreadable:
            raise PartialResultError(samples, SourceError("; ".join(unreadable)))
        return samples

    def close(self) -> None:
        """Close the logs."""
        for follower in self._followers:
            follower.close()

    def _count(self, lines: Iterable[bytes]) -> set[str]:
        """Count lines; return their outcomes."""
        outcomes: set[str] = set()
        # Lines have neither times nor ids, so most are alike and parsed once.
        for line, number in Counter(lines).items():
            outcome = self._outcome_of(line, number)
            self._lines[outcome] += number
            outcomes.add(outcome)
        return outcomes

    def _outcome_of(self, line: bytes, number: int) -> str:
        try:
            found = logged_request(line, MAX_LINE_BYTES)
        except ForeignJsonError:
            return "malformed"
        if found is None:
            return "other"
        if found.own:
            return "own"
        if self._outcomes.add(found.model, found.version, found.outcome, number):
            return "counted"
        return "unknown_model"

    def _line_samples(self) -> Iterable[Sample]:
        counts = [follower.counts for follower in self._followers]
        outcomes = {
            **self._lines,
            "too_long": sum(count.too_long for count in counts),
        }
        for outcome, number in outcomes.items():
            yield Sample(catalogue.ACCESS_LOG_LINES, number, (outcome,))
        yield Sample(
            catalogue.ACCESS_LOG_TRUNCATIONS, sum(count.truncated for count in counts)
        )
