"""Quantiles of the process behind the requests: those expected of the next such window.

The interval is about the process and not merely about the requests that came. Requests
of one process depend on each other (batches, queues, slow spells), so `count` of them carry
the information of fewer independent ones. That number is measured from the window's own
slots of time (`drift.numerics.dependence`), by the requests above the quantile. The
ranks of the order-statistic interval are those of this number of independent requests.

A window that happens to be calm does not show that the process is. If each window counted
by itself, the intervals shown would come from the calmest windows: at 95 % load, those of p90
covered in 40 %. So no window counts as less dependent than the median of the last twelve.
Nor do the slots of a window show dependence that lasts longer than they do (a level that
wanders, a source that is on for minutes). That shows in the differences between consecutive
windows. The largest is left out: it may be a single change of the level (a new version).

An interval ends above its quantile, where dependence may last longer: the largest phi of
three counts, of the quantile, of those below it and of the next one above it. Events that
did not happen within the window (a rarer slow spell) cannot be in the interval.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.dependence import Inflation, inflation, variance_ratio
from exporter.histograms.histogram import Histogram
from exporter.histograms.quantiles import supports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drift.numerics.dependence import Floats

_CONFIDENCE: Final = 0.95
_LEAST_EXCEEDANCES: Final = 5.0
"""A phi measured from fewer requests says nothing about the quantile below."""
_LEAST_VARIANCE: Final = 0.25
"""Minimum of p (1 - p) at a bucket's edge, relative to the quantile's own: below it all
values are in one bucket.
"""

_WINDOWS: Final = 12
"""Windows whose dependence counts, the present one included: an hour, if each has five minutes."""
_LEAST_STEPS: Final = 6
_TRIMMED: Final = 1.4
"""Mean of eleven squares of normal differences over that of all but the largest of them."""
_FREEDOM: Final = 7.0
"""Degrees of freedom of that mean, by simulation."""


@dataclass(frozen=True, slots=True)
class ProcessQuantile:
    """A quantile in seconds, its interval, and the independent requests it rests on.

    `interval` is None where `effective_samples` are too few for it
    (`quantiles.minimum_count`); they are 0 where dependence cannot be measured because
    requests came in fewer than four slots of time.
    """

    q: float
    value: float
    interval: tuple[float, float] | None
    effective_samples: float


class ProcessQuantiles:
    """Quantiles of consecutive windows of one process, with 95 % intervals."""

    def __init__(self, quantiles: Sequence[float], window_seconds: float) -> None:
        """`quantiles` are rising, each inside (0, 1)."""
        self._quantiles = quantiles
        self._window_seconds = window_seconds
        self._worths = {q: deque[float](maxlen=_WINDOWS - 1) for q in quantiles}
        """Independent requests that one of an earlier window was worth, by quantile."""
        self._steps = {q: deque[float](maxlen=_WINDOWS - 1) for q in quantiles}
        """Phi of two consecutive windows, by quantile."""
        self._previous: Histogram | None = None
        self._remembered_at: float | None = None

    def of(self, slots: Sequence[Histogram], now: float) -> list[ProcessQuantile]:
        """Return the quantiles that the count of a window supports.

        Args:
            slots: the histograms of the window's slots of time, in order.
            now: monotonic seconds at the window's end.
        """
        whole = Histogram()
        for slot in slots:
            whole.merge(slot)
        if not whole.count:
            return []
        quantiles = self._quantiles
        measured = [_inflation(slots, whole, q) for q in quantiles]
        found: list[ProcessQuantile] = []
        worths: dict[float, float] = {}
        for place, q in enumerate(quantiles):
            value = whole.quantile(q)
            if value is None or not supports(whole.count, q):
                continue
            kept = measured[: place + 1]
            following = quantiles[place + 1 : place + 2]
            if any((1.0 - p) * whole.count >= _LEAST_EXCEEDANCES for p in following):
                kept = measured[: place + 2]
            worth = _worth(kept)
            if worth:
                worths[q] = worth
                before = (*self._worths[q], worth)
                worth = min(worth, median(before), self._worth_between(q))
            effective = worth * whole.count
            interval = (
                whole.quantile_interval(q, _CONFIDENCE, effective)
                if effective
                else None
            )
            found.append(ProcessQuantile(q, value, interval, effective))
        self._remember(worths, whole, now)
        return found

    def _worth_between(self, q: float) -> float:
        """Return how many independent requests one is worth, by the differences of windows."""
        steps = self._steps[q]
        if len(steps) < _LEAST_STEPS:
            return math.inf
        phi = _TRIMMED * (sum(steps) - max(steps)) / (len(steps) - 1)
        return Inflation(max(phi, 1.0), _FREEDOM).effective_samples(1, _CONFIDENCE)

    def _remember(
        self, worths: Mapping[float, float], whole: Histogram, now: float
    ) -> None:
        """Keep what was measured, once a window."""
        if self._remembered_at is None:
            self._remembered_at = now
        if now - self._remembered_at >= self._window_seconds:
            self._remembered_at = now
            for q, worth in worths.items():
                self._worths[q].append(worth)
                if self._previous is not None:
                    both = (self._previous, whole)
                    counts, events = _above(both, self._previous + whole, q)
                    self._steps[q].append(float(variance_ratio(events, counts)))
            self._previous = whole


def _worth(measured: Sequence[Inflation | None]) -> float:
    """Return the independent requests that one is worth; 0 if that cannot be measured."""
    known = [found for found in measured if found is not None]
    if not known:
        return 0.0
    largest = max(known, key=lambda found: found.phi)
    return largest.effective_samples(1, _CONFIDENCE)


def _inflation(
    slots: Sequence[Histogram], whole: Histogram, q: float
) -> Inflation | None:
    """Phi of the requests above a quantile."""
    return inflation(*_above(slots, whole, q))


def _above(
    slots: Sequence[Histogram], whole: Histogram, q: float
) -> tuple[Floats, Floats]:
    """Return the requests of each slot, and those above the bucket edge nearest to `q`.

    None are above if nearly all requests are in one bucket.
    """
    edges = whole.edges_about(q)
    counts = np.array([slot.count for slot in slots], np.float64)
    events = np.array([slot.above(edges) for slot in slots], np.float64)
    shares = events.sum(axis=0) / counts.sum()
    nearest = int(np.argmin(np.abs(shares - (1.0 - q))))
    share = float(shares[nearest])
    if share * (1.0 - share) < _LEAST_VARIANCE * q * (1.0 - q):
        events = np.zeros_like(events)
    return counts, events[:, nearest]
