"""The latency histogram: what recording, merging and reading cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import figures
import numpy as np
from figures import SEED
from timing import cpu_seconds, in_turns

from exporter.histograms.buckets import upper_bound
from exporter.histograms.histogram import Histogram, WindowedHistogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure
    from numpy.typing import NDArray

ARRAY = 1_000_000
CALLS = 2_000
SLOTS = 30
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
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


def read(*, quick: bool = False) -> Iterator[Figure]:
    """Quantile, interval, classic buckets, and the snapshot of a sliding window."""
    histogram = _histogram_of(_latencies(ARRAY))
    window = WindowedHistogram(60.0, SLOTS)
    for slot, values in enumerate(np.split(_latencies(SLOTS * 1000), SLOTS)):
        window.record_many(values, slot * 2.0)
    reads: dict[str, tuple[Callable[[], object], str]] = {
        "quantile": (lambda: histogram.quantile(0.99), "one p99"),
        "quantile_interval": (
            lambda: histogram.quantile_interval(0.99),
            "one 95 % interval of p99",
        ),
        "cumulative": (
            lambda: histogram.cumulative(BOUNDS),
            f"classic counts under {len(BOUNDS)} bounds",
        ),
        "window_snapshot": (
            lambda: window.snapshot(59.0),
            f"the snapshot of a window of {SLOTS} slots of 1,000 values",
        ),
    }
    for name, (call, what) in reads.items():

        def every(call: Callable[[], object] = call) -> None:
            for _ in range(CALLS // 10):
                call()

        yield _cost(name, every, what, goal=None, calls=CALLS // 10, quick=quick)


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
