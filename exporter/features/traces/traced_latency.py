"""One latency of one model: its histogram, the quantiles of a window, and exemplars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import catalogue
from exporter.histograms.histogram import Histogram
from exporter.histograms.process_quantiles import ProcessQuantiles
from exporter.histograms.windowed_histogram import WindowedHistogram
from exporter.samples import Exemplar, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.samples import AnySample, MetricSpec

WINDOW_SLOTS: Final = 30
_TRACE_ID_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class LatencySpecs:
    """The metrics that a latency is exposed as.

    Of a `clustered` latency a request has many values, which depend on each other. They
    are in one slot of time, so that the interval accounts for it; a number of values says
    little about a quantile then, which is absent without its interval.
    """

    histogram: MetricSpec
    quantile: MetricSpec
    interval: MetricSpec
    effective: MetricSpec
    clustered: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """Time at which traces arrived: monotonic seconds, and seconds since the epoch."""

    now: float
    wall_now: float


REQUEST: Final = LatencySpecs(
    catalogue.REQUEST_DURATION,
    catalogue.REQUEST_LATENCY,
    catalogue.REQUEST_LATENCY_CI,
    catalogue.REQUEST_LATENCY_EFFECTIVE,
)
FIRST_RESPONSE: Final = LatencySpecs(
    catalogue.FIRST_RESPONSE,
    catalogue.FIRST_RESPONSE_LATENCY,
    catalogue.FIRST_RESPONSE_LATENCY_CI,
    catalogue.FIRST_RESPONSE_LATENCY_EFFECTIVE,
)
RESPONSE_GAP: Final = LatencySpecs(
    catalogue.RESPONSE_GAP,
    catalogue.RESPONSE_GAP_LATENCY,
    catalogue.RESPONSE_GAP_LATENCY_CI,
    catalogue.RESPONSE_GAP_LATENCY_EFFECTIVE,
    clustered=True,
)


class TracedLatency:
    """Not thread-safe; bounded by the span of the histogram and the slots of the window."""

    def __init__(self, specs: LatencySpecs, window_seconds: float) -> None:
        self._specs = specs
        self._window = WindowedHistogram(window_seconds, WINDOW_SLOTS)
        self._process = ProcessQuantiles(catalogue.QUANTILES, window_seconds)
        self._whole = Histogram()
        self._exemplars: dict[int, Exemplar] = {}

    def record(self, timed: Sequence[tuple[float, str]], at: Moment) -> None:
        """Count seconds, each with the id of the trace that it is of."""
        if not timed:
            return
        seconds = np.array([value for value, _ in timed], np.float64)
        self._whole.record_many(seconds)
        self._window.record_many(seconds, at.now)
        # The latest value of each bucket stands for it.
        places = np.searchsorted(self._specs.histogram.buckets, seconds)
        buckets, last = np.unique(places[::-1], return_index=True)
        for bucket, back in zip(buckets.tolist(), last.tolist(), strict=True):
            value, trace_id = timed[len(timed) - 1 - back]
            if (
                0 < len(trace_id) <= _TRACE_ID_CHARS
                and trace_id.isascii()
                and trace_id.isalnum()
            ):
                self._exemplars[bucket] = Exemplar(
                    value, at.wall_now, {"trace_id": trace_id}
                )

    def samples(self, labels: tuple[str, ...], now: float) -> Iterator[AnySample]:
        """Yield the histogram and the window's quantiles; none before the first value."""
        if self._whole.count:
            yield HistogramSample(
                self._specs.histogram,
                self._whole.copy(),
                labels,
                tuple(self._exemplars.values()),
            )
        yield from self._quantiles(labels, now)

    def _quantiles(self, labels: tuple[str, ...], now: float) -> Iterator[Sample]:
        specs = self._specs
        for found in self._process.of(self._window.slots(now), now):
            named = (*labels, str(found.q))
            yield Sample(specs.effective, found.effective_samples, named)
            if found.interval is not None or not specs.clustered:
                yield Sample(specs.quantile, found.value, named)
            for bound, limit in zip(
                ("lower", "upper"), found.interval or (), strict=False
            ):
                yield Sample(specs.interval, limit, (*named, bound))
