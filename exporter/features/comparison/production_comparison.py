"""A/B comparison of two models that get different requests, from production's figures.

Requests are not assigned at random here, and consecutive requests meet the same load.
Time is therefore divided into windows, and the two models are compared within each: a
window is a pair. Effects on both models cancel, and requests of one window may be
correlated. Correlation between consecutive windows of one model widens the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.dependence import sequence_inflation
from exporter import catalogue
from exporter.errors import InvalidRequestError
from exporter.features.comparison.confidence import (
    MIXTURE_WINDOWS,
    WARM_UP_PAIRS,
    Interval,
    boundary,
    doubt,
    from_zero,
    mean_ratio,
    open_ratio,
    unseen_stalls,
)
from exporter.features.comparison.paired_intervals import proportion
from exporter.histograms.buckets import (
    BUCKETS_PER_OCTAVE,
    FIRST_INDEX,
    GROWTH,
    LAST_SLOT,
)
from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.comparison_budget import Wait
    from exporter.features.comparison.comparison_settings import (
        ComparisonSettings,
        Metric,
    )
    from exporter.features.comparison.confidence import Values
    from exporter.histograms.histogram import Histogram

    Floats = NDArray[np.float64]

MOST_WINDOWS: Final = 256
"""Maximum of windows; of more, two neighbours are merged."""
_FIRST_RESTART: Final = 64
_MOST_SEQUENCES: Final = 40
_MOST_MOVED: Final = 7 * BUCKETS_PER_OCTAVE
"""Ratios beyond a factor of 128 are not distinguished."""


@dataclass(slots=True)
class Window:
    """Latencies of both models in one stretch of time."""

    champion: Histogram
    challenger: Histogram

    @property
    def weight(self) -> float:
        """Harmonic mean of the two counts: the smaller one limits the information."""
        x, y = self.champion.count, self.challenger.count
        return 2 * x * y / (x + y)

    def join(self, later: Window) -> Window:
        """Return both periods as one."""
        return Window(
            self.champion + later.champion, self.challenger + later.challenger
        )


class Windows:
    """The windows so far, in bounded memory; each has requests of both."""

    def __init__(self) -> None:
        self._held: list[Window] = []
        self._open: Window | None = None
        self._factor = 1
        self._parts = 0

    def add(self, champion: Histogram, challenger: Histogram) -> None:
        """Add the latencies recorded since the last call."""
        latest = Window(champion, challenger)
        self._open = latest if self._open is None else self._open.join(latest)
        self._parts += 1
        full = self._parts >= self._factor
        if full and self._open.champion.count and self._open.challenger.count:
            self._held.append(self._open)
            self._open, self._parts = None, 0
        if len(self._held) >= MOST_WINDOWS:
            pairs = zip(self._held[::2], self._held[1::2], strict=True)
            self._held = [earlier.join(later) for earlier, later in pairs]
            self._factor *= 2

    @property
    def count(self) -> int:
        """Windows that can be compared."""
        return len(self._held)

    @property
    def requests(self) -> int:
        """Requests to the one that got fewer."""
        return min(
            sum(w.champion.count for w in self._held),
            sum(w.challenger.count for w in self._held),
        )

    def mean_ratio(self, alpha: float) -> Interval | None:
        """The ratio of the means less 1, windows weighted by their requests."""
        weights = np.array([w.weight for w in self._held])
        x = np.array([w.champion.sum / w.champion.count for w in self._held])
        y = np.array([w.challenger.sum / w.challenger.count for w in self._held])
        found = mean_ratio(weights * x, weights * y, alpha, MIXTURE_WINDOWS)
        why = unseen_stalls(self.requests)
        if found is None or not why:
            return found
        return open_ratio(found.estimate, found.pairs, why)

    def quantile_ratio(self, q: float, alpha: float) -> Interval | None:
        """The ratio of the q-quantiles less 1, to a histogram bucket's width.

        As in `paired_intervals.py`, with the window for the pair: its step is the
        difference of the two shares beyond the joint quantile, weighted. The variance
        is that of the steps about their mean, as in Student's statistic.
        """
        if len(self._held) < WARM_UP_PAIRS:
            return None
        beyond = [_beyond([getattr(w, side) for w in self._held]) for side in _SIDES]
        weights = np.array([w.weight for w in self._held])
        totals = [weights @ side / weights.sum() for side in beyond]
        x, y = (_place(total, q) for total in totals)

        def steps_at(moved: int) -> Values:
            place = _place((totals[0] + _moved(totals[1], moved)) / 2, q)
            there = min(max(place + moved, 0), LAST_SLOT - 1)
            steps: Values = weights * (beyond[1][:, there] - beyond[0][:, place])
            return steps

        count, estimate = len(self._held), GROWTH ** (y - x) - 1
        found = sequence_inflation(steps_at(y - x), bounded=True)
        why = doubt(found, count)
        if found is None or why:
            return open_ratio(estimate, count, why)
        z = boundary(count / found.phi, alpha, MIXTURE_WINDOWS)
        reach = found.deviations(z)
        most = from_zero(reach, count)

        def kept(moved: int) -> bool:
            steps = steps_at(moved)
            spread = math.sqrt(float(steps @ steps))
            # Without requests beyond the quantile nothing is known.
            return not spread or abs(float(steps.sum())) < most * spread

        low, high = _edge(kept, y - x, -1), _edge(kept, y - x, 1)
        return Interval(estimate, low - 1, high - 1, count, count * (z / reach) ** 2)


class Outcomes:
    """Successes and failures of both by stretch of time, in bounded memory."""

    def __init__(self) -> None:
        self._held: list[Values] = []
        self._open = np.zeros((2, 2))
        self._factor = 1
        self._parts = 0

    def add(self, risen: Values) -> None:
        """Add (successes, failures) of champion and challenger since the last call."""
        self._open = self._open + risen
        self._parts += 1
        if self._parts < self._factor:
            return
        self._held.append(self._open)
        self._open, self._parts = np.zeros((2, 2)), 0
        if len(self._held) >= MOST_WINDOWS:
            pairs = zip(self._held[::2], self._held[1::2], strict=True)
            self._held = [earlier + later for earlier, later in pairs]
            self._factor *= 2

    def difference(self, alpha: float) -> Interval | None:
        """Challenger's share of successes less the champion's, by stretch as a pair.

        A challenger that begins to fail midway makes all stretches correlated, so that
        the whole time claims nothing. So there are further sequences that begin after 64,
        128, 256, ... stretches, with 1/2, 1/6, 1/12, ... of alpha: all hold at once, and
        the narrowest counts. The first after a change begins at most twice as late.
        """
        stretches = np.array(self._held).reshape(-1, 2, 2)
        found = []
        for number in range(1, _MOST_SEQUENCES):
            start = _FIRST_RESTART << (number - 2) if number > 1 else 0
            if start % self._factor == 0:
                begun, spent = start // self._factor, alpha / number / (number + 1)
                found.append(_success_difference(stretches[begun:], spent))
        known = [one for one in found if one is not None]
        return min(
            known, key=lambda one: (one.high - one.low, -one.pairs), default=None
        )


def _success_difference(stretches: Values, alpha: float) -> Interval | None:
    """Return the difference over stretches (N, 2, 2) of time, of those with requests to both.

    Their walk shows spells of failures that were seen. Where there were few or none, the
    exact intervals of the two shares are wider, and they count.
    """
    stretches = stretches[stretches.sum(axis=2).all(axis=1)]
    counts = stretches.sum(axis=2)
    if not counts.size:
        return None
    weights = 2 * counts.prod(axis=1) / counts.sum(axis=1)
    shares = stretches[:, :, 0] / counts
    ahead = weights * (1 + shares[:, 1] - shares[:, 0])
    walk = mean_ratio(weights, ahead, alpha, MIXTURE_WINDOWS)
    requests = round(counts.sum(axis=0).min())
    if walk is None:
        estimate = float(ahead.sum() / weights.sum()) - 1
        why = f"{len(counts)} of at least {WARM_UP_PAIRS} stretches of time"
        return Interval(estimate, -1.0, 1.0, requests, 0.0, why)
    sums = stretches.sum(axis=0).tolist()
    x, y = (proportion(round(s), round(s + f), alpha / 2) for s, f in sums)
    if x is None or y is None:
        return None
    low, high = min(walk.low, y.low - x.high), max(walk.high, y.high - x.low)
    worth = requests * walk.worth / len(counts)
    return Interval(walk.estimate, low, min(high, 1.0), requests, worth, walk.withheld)


_SIDES: Final = ("champion", "challenger")


def _beyond(histograms: list[Histogram]) -> Values:
    """Return the share of requests slower than each bucket, by window and bucket."""
    counts = np.zeros((len(histograms), LAST_SLOT))
    for row, histogram in zip(counts, histograms, strict=True):
        buckets = histogram.buckets()
        # Values in the zero bucket are below every bucket that matters here.
        first = buckets.prometheus_offset - FIRST_INDEX - 1
        if buckets.counts.size:
            row[max(first, 0) : first + buckets.counts.size] = buckets.counts
        row[0] += histogram.zero_count
    shares: Values = counts.cumsum(axis=1)
    shares /= -shares[:, -1:]
    shares += 1
    return shares


def _place(beyond: Values, q: float) -> int:
    """The first bucket with no more than 1 - q beyond it."""
    return min(int(np.count_nonzero(beyond > 1 - q)), LAST_SLOT - 1)


def _moved(beyond: Values, places: int) -> Values:
    """Return the shares of values that are `places` buckets smaller."""
    found = np.zeros_like(beyond) if places > 0 else np.ones_like(beyond)
    if places > 0:
        found[:-places] = beyond[places:]
    else:
        found[-places:] = beyond[: LAST_SLOT + places]
    return found


def _edge(kept: Callable[[int], bool], inside: int, step: int) -> float:
    """The first ratio on the way that is not kept, in steps of a bucket."""
    while abs(inside) < _MOST_MOVED:
        inside += step
        if not kept(inside):
            # A whole number of buckets: no bucket is a ratio of 1 to the last bit.
            return GROWTH**inside
    return math.inf if step > 0 else 0.0


_QUANTILES: Final[dict[Metric, float]] = {
    "latency_p50": 0.5,
    "latency_p95": 0.95,
    "latency_p99": 0.99,
}


class ProductionComparison:
    """Sends nothing; needs the traces collector for latencies."""

    inputs_name = "production"
    wait: Wait | None = None
    """Always None: no requests are sent, so none waits."""

    def __init__(self, settings: ComparisonSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._alpha = settings.alpha / len(settings.wanted)
        self.keys: tuple[ModelKey, ModelKey] | None = None
        self.loads: tuple[float | None, ...] = ()
        self.problem = "the models have not been read yet"
        self.failure = ""
        self.windows = Windows()
        self._last: dict[ModelKey, Histogram] = {}
        self._results = Outcomes()
        self._counts: Floats | None = None

    @property
    def complete(self) -> bool:
        """Always False: it costs nothing to continue."""
        return False

    @property
    def outcomes(self) -> dict[str, int]:
        """Windows that can be compared."""
        return {"both": self.windows.count}

    @property
    def budget_used(self) -> dict[str, float]:
        """Return no shares: no requests are sent."""
        return {}

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def update(self) -> None:
        """Record the samples that are exposed now."""
        board = self._access.board
        if not board.was_read:
            # The server was not polled yet: nothing is missing.
            return
        inventory = board.current
        try:
            champion, challenger = self._settings.models_in(inventory)
        except InvalidRequestError as error:
            self.problem = str(error)
            return
        self.problem = ""
        keys = champion.key, challenger.key
        loads = inventory.loads(keys)
        if (keys, loads) != (self.keys, self.loads):
            self.keys, self.loads = keys, loads
            self.windows, self._last = Windows(), {}
            self._results, self._counts = Outcomes(), None
        self._record(keys)

    def _record(self, keys: tuple[ModelKey, ModelKey]) -> None:
        histograms: dict[ModelKey, Histogram] = {}
        counts = np.zeros((2, 2))
        counted: set[ModelKey] = set()
        for sample in self._access.exposed():
            if isinstance(sample, HistogramSample):
                if sample.spec is catalogue.REQUEST_DURATION:
                    model, version = sample.labels
                    histograms[model, version] = sample.histogram
            elif isinstance(sample, Sample) and sample.spec is catalogue.REQUESTS:
                model, version, outcome = sample.labels
                if (model, version) in keys:
                    side = keys.index((model, version))
                    counts[side, int(outcome != "success")] += sample.value
                    counted.add((model, version))
        # Statistics that are late are absent: that is no count of zero.
        if counted >= set(keys):
            if self._counts is not None and (counts >= self._counts).all():
                self._results.add(counts - self._counts)
            self._counts = counts
        self._window(histograms, keys)

    def intervals(self) -> dict[Metric, Interval]:
        """Return the interval of each metric's effect; unknown ones are absent."""
        found: dict[Metric, Interval | None] = {
            metric: self.windows.quantile_ratio(q, self._alpha)
            for metric, q in _QUANTILES.items()
            if metric in self._settings.wanted
        }
        if "latency_mean" in self._settings.wanted:
            found["latency_mean"] = self.windows.mean_ratio(self._alpha)
        if "success" in self._settings.wanted:
            found["success"] = self._results.difference(self._alpha)
        return {metric: i for metric, i in found.items() if i is not None}

    def _window(
        self, histograms: dict[ModelKey, Histogram], keys: tuple[ModelKey, ModelKey]
    ) -> None:
        if not histograms.keys() >= set(keys):
            return
        if self._last.keys() >= set(keys):
            try:
                risen = [histograms[key].since(self._last[key]) for key in keys]
            except ValueError:
                # Reset, as after a reload of the traces collector.
                risen = []
            if risen:
                self.windows.add(risen[0], risen[1])
        self._last = {key: histograms[key].copy() for key in keys}
