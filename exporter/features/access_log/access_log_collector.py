"""Counts how requests ended for their clients, as the access logs of proxies have it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from exporter import catalogue
from exporter.access.client_outcomes import ClientOutcomes
from exporter.access.collector_base import Access, CollectorSettings
from exporter.errors import PartialResultError, SourceError
from exporter.features.access_log.access_log_lines import logged_request
from exporter.samples import Sample
from exporter.system.followed_lines import MAX_LINE_BYTES, LineFollower
from exporter.taps.foreign_json import ForeignJsonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from exporter.samples import AnySample

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
        self._outcomes = ClientOutcomes(SOURCE, access)
        self._lines: Counter[str] = Counter(
            dict.fromkeys(("counted", "own", "other", "unknown_model", "malformed"), 0)
        )

    def collect(self) -> Sequence[AnySample]:
        """Read what was appended.

        Raises:
            SourceError: no log can be read.
            PartialResultError: some cannot.
        """
        seconds = self._settings.deadline_seconds * _SHARE_OF_DEADLINE
        until = self._access.clock() + seconds
        # Until the models are known, lines stay where they are.
        known = bool(self._access.board.current.models)
        most_bytes = self._settings.max_run_bytes if known else 0
        unreadable: list[str] = []
        for follower in self._followers:
            try:
                for lines in follower.poll(until, most_bytes):
                    self._count(lines)
            except SourceError as error:
                unreadable.append(str(error))
        samples = [*self._outcomes.samples(), *self._line_samples()]
        if not unreadable:
            return samples
        cause = SourceError("; ".join(unreadable))
        if len(unreadable) == len(self._followers):
            raise cause
        raise PartialResultError(samples, cause)

    def close(self) -> None:
        """Close the logs."""
        for follower in self._followers:
            follower.close()

    def _count(self, lines: Iterable[bytes]) -> None:
        # Lines have neither times nor ids, so most are alike and parsed once.
        for line, number in Counter(lines).items():
            self._lines[self._outcome_of(line, number)] += number

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
