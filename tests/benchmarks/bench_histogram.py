"""The latency histogram: what recording, merging and reading cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import figures
import numpy as np
from figures import SEED
from timing import cpu_seconds, in_turns

from exporter.histograms.buckets import upper_bound
from exporter.histograms.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from figures import Figure
    from numpy.typing import NDArray

ARRAY = 1_000_000
CALLS = 2_000
_NOTE = "20 ms median, lognormal(sigma 0.5), CPU time of one thread"


def record_many(*, quick: bool = False) -> Figure:
    """A million values in one array; beside numpy.histogram with the same bounds."""
    values = _latencies(ARRAY)
    edges = np.array([upper_bound(index) for index in range(-960, 641)])
    ours, theirs = (
        [1e9 / ARRAY * seconds for seconds in spent]
        for spent in in_turns(
            [
                lambda: Histogram().record_many(values),
                lambda: np.histogram(values, edges),
            ],
            repeats=5 if quick else 21,
        )
    )
    return figures.at_most(
        "histogram_record_many",
        unit="nanoseconds",
        goal=30.0,
        measured=f"recording {ARRAY} values as one array, per value; {_NOTE}",
        n=len(ours),
        **figures.median(ours),
        peer=figures.median(theirs)["value"],
        ratio=figures.median_ratio(ours, theirs)["value"],
        peer_name="numpy.histogram with the same 1,601 bounds",
        seed=SEED,
        versions=figures.versions("numpy"),
    )


def record(*, quick: bool = False) -> Figure:
    """One value at a time."""
    values, histogram = _latencies(CALLS).tolist(), Histogram()

    def every() -> None:
        for value in values:
            histogram.record(value)

    return _cost(
        "record", every, "recording one value", goal=1_000.0, unit="ns", quick=quick
    )


def merge(*, quick: bool = False) -> Figure:
    """One histogram of half a million values into another."""
    whole, part = (_histogram_of(half) for half in np.split(_latencies(ARRAY), 2))

    def every() -> None:
        for _ in range(CALLS):
            whole.merge(part)

    return _cost("merge", every, "merging two histograms", goal=20.0, quick=quick)


def _cost(
    name: str,
    every: Callable[[], None],
    what: str,
    *,
    goal: float | None,
    quick: bool,
    unit: str = "us",
    calls: int = CALLS,
) -> Figure:
    scale, full = {"ns": (1e9, "nanoseconds"), "us": (1e6, "microseconds")}[unit]
    spent = cpu_seconds(every, 5 if quick else 21)
    times = [scale / calls * seconds for seconds in spent]
    return figures.at_most(
        f"histogram_{name}",
        unit=full,
        goal=goal,
        measured=f"{what}, the mean of {calls} calls; {_NOTE}; median of n",
        n=len(times),
        **figures.median(times),
        seed=SEED,
        versions=figures.versions("numpy"),
    )


def _latencies(count: int) -> NDArray[np.float64]:
    return 0.02 * np.random.default_rng(SEED).lognormal(0.0, 0.5, count)


def _histogram_of(values: NDArray[np.float64]) -> Histogram:
    histogram = Histogram()
    histogram.record_many(values)
    return histogram
