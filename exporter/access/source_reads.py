"""Times at which the sources of exposed samples were read, and rates between them.

Exposed samples are repeated until their source is read again. The increase between two
observations of them would therefore belong to no known time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.samples import ReadTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporter.samples import AnySample, MetricSpec

Series = tuple[str, ...]
"""Label values of one series."""
_OF_COLLECTORS: Final = frozenset(
    {
        catalogue.SERIES_DROPPED,
        catalogue.COLLECTOR_DURATION,
        catalogue.COLLECTOR_SUCCESS,
        catalogue.COLLECTOR_TIMESTAMP,
        catalogue.COLLECTOR_READ_TIMESTAMP,
    }
)
_TIMES: Final = (catalogue.COLLECTOR_READ_TIMESTAMP, catalogue.COLLECTOR_TIMESTAMP)


def with_read_times(
    exposed: Iterable[AnySample], now: float
) -> Iterator[tuple[AnySample, float | None]]:
    """Yield each sample with the monotonic seconds of its source's latest read.

    Of gauges this is the latest read of any kind; of what is counted the latest whole one,
    since counters of a source that a partial read left out stand still. A collector's
    samples are followed by its own metrics, which contain these times; they are None
    before the first read. These metrics, and samples without a collector, are read at
    `now`.
    """
    pending: list[AnySample] = []
    times: dict[MetricSpec, float] = {}
    has_collector = False
    for sample in exposed:
        if sample.spec in _OF_COLLECTORS:
            has_collector = True
            if isinstance(sample, ReadTime):
                times[sample.spec] = sample.at
            yield sample, now
            continue
        if has_collector:
            yield from _timed(pending, times)
            pending, times, has_collector = [], {}, False
        pending.append(sample)
    if has_collector:
        yield from _timed(pending, times)
    else:
        yield from ((before, now) for before in pending)


def _timed(
    samples: Iterable[AnySample], times: Mapping[MetricSpec, float]
) -> Iterator[tuple[AnySample, float | None]]:
    read, whole = (times.get(spec) for spec in _TIMES)
    for sample in samples:
        yield sample, read if sample.spec.kind == "gauge" else whole


class ReadAgain:
    """Tells series whose source was read since the last observation."""

    def __init__(self) -> None:
        self._read_at: dict[Series, float | None] = {}

    def add(self, read_at: Mapping[Series, float | None]) -> set[Series]:
        """Return the series that were read again, from the times of their reads."""
        before, self._read_at = self._read_at, dict(read_at)
        return {
            s for s, at in read_at.items() if at is not None and at != before.get(s)
        }


class CounterRates:
    """Rates per second of counters between two reads of their sources."""

    def __init__(self) -> None:
        self._before: dict[Series, tuple[float, float]] = {}

    def add(
        self, totals: Mapping[Series, tuple[float, float | None]]
    ) -> dict[Series, float]:
        """Return the rates of the series that were read again, and did not fall.

        `totals` has each total and the time at which it was read.
        """
        before, self._before = self._before, {}
        rates = {}
        for series, (total, read_at) in totals.items():
            if read_at is None:
                continue
            last, last_at = before.get(series, (total, read_at))
            if read_at == last_at:
                self._before[series] = last, last_at
                continue
            self._before[series] = total, read_at
            if read_at > last_at and total >= last:
                rates[series] = (total - last) / (read_at - last_at)
        return rates
