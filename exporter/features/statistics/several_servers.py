"""Several servers behind the one address that is watched.

A Service or a proxy in front of several servers gives each connection to one of them: the
statistics come from one, production and probes go to all. Two reads on the collector's own
connection bound what any read in between can show of the same server; what a read on a new
connection shows outside of these bounds is another server's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from exporter import catalogue, errors
from exporter.features.statistics.production_counts import counters_of
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.triton.protocol_types import ModelStatistics

    Statistics = Mapping[ModelKey, ModelStatistics]

_EVERY_SECONDS: Final = 15.0
_REMEMBERED_SECONDS: Final = 600.0
_FEWEST_FINDINGS: Final = 2
"""One may be a server that was restarted between the reads."""


class SeveralServers:
    """Compares reads on new connections with those around them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next_at = clock()
        self._found_at: deque[float] = deque(maxlen=_FEWEST_FINDINGS)
        self._was_compared = False

    def is_due(self) -> bool:
        """Return whether it is time for a read on a new connection."""
        return self._clock() >= self._next_at

    def read(self, read_anew: Callable[[], Statistics]) -> Statistics | None:
        """Read on a new connection; None where it gave no answer."""
        self._next_at = self._clock() + _EVERY_SECONDS
        try:
            return read_anew()
        except errors.TritonError:
            return None

    def compare(
        self, before: Statistics, between: Statistics, after: Statistics
    ) -> None:
        """Record whether the read in between came from another server."""
        self._was_compared = True
        if is_another(before, between, after):
            self._found_at.append(self._clock())

    def samples(self, *, is_one_process: bool) -> Iterator[Sample]:
        """Yield the sample; none where neither reads nor the process give an answer."""
        if is_one_process or self._was_compared:
            seen_twice = len(self._found_at) == _FEWEST_FINDINGS and (
                self._clock() - self._found_at[0] < _REMEMBERED_SECONDS
            )
            yield Sample(catalogue.SEVERAL_SERVERS, seen_twice)


def is_another(before: Statistics, between: Statistics, after: Statistics) -> bool:
    """Return whether `between` cannot be of the server that gave the other two.

    Models that were reloaded, loaded or unloaded between the outer reads are ignored.
    """
    if before.keys() == after.keys() != between.keys():
        return True
    for key in before.keys() & between.keys() & after.keys():
        bounds = zip(
            counters_of(before[key]),
            counters_of(between[key]),
            counters_of(after[key]),
            strict=True,
        )
        rows = list(bounds)
        if any(low > high for low, _, high in rows):
            continue
        if any(not low <= value <= high for low, value, high in rows):
            return True
    return False
