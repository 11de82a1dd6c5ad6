"""Drift: what counting costs, and what is kept.

All times are CPU time of one thread; nothing here waits or uses a second one.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import figures
import numpy as np
from drifting import BUDGET, MIXED, counted, draw
from scipy import stats
from timing import cpu_seconds

from drift import statistics
from drift.alarms.monitor import Monitor
from drift.comparison import Baseline
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit
from drift.window import Accumulator, Counts, SlidingWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from drifting import Rows
    from figures import Figure
    from numpy.typing import NDArray

FEATURES = 50
CATEGORIES = 10
FLOATS = Schema.from_tensors([Tensor("x", "FP32", (FEATURES,))])
TABLE = Schema(
    (Tensor("x", "FP32", (FEATURES,)), Tensor("c", "INT64", (CATEGORIES,))),
    (
        *(Feature(f"x{i}", "x", i) for i in range(FEATURES)),
        *(Feature(f"c{i}", "c", i, "categorical") for i in range(CATEGORIES)),
    ),
)
DISTANCES = (
    statistics.Psi(),
    statistics.JensenShannon(),
    statistics.KolmogorovSmirnov(),
    statistics.Wasserstein(),
)


def update(*, quick: bool = False) -> Iterator[Figure]:
    """Counting requests of 1 to 1,024 rows of 50 float32 features, after parsing."""
    rng = np.random.default_rng(figures.SEED)
    # What was just parsed is still in the cache: so are these few thousand rows.
    rows = rng.normal(size=(8192, FEATURES)).astype(np.float32)
    window = fit(FLOATS, {"x": rows}).accumulator()
    for size, unit, goal in (
        (1, "us", 3.0),
        (8, "us", None),
        (64, "ns", 5.0),
        (1024, "ns", 5.0),
    ):
        parts = [{"x": rows[i : i + size]} for i in range(0, len(rows), size)]
        requests = parts * (2 if size == 1 else 8)
        per = len(requests) * (1e-6 if unit == "us" else 1e-9 * size * FEATURES)

        def count(requests: list[dict[str, NDArray[np.generic]]] = requests) -> None:
            for request in requests:
                window.update(request)

        spent = [seconds / per for seconds in cpu_seconds(count, 5 if quick else 30)]
        found = figures.median(spent)
        yield figures.at_most(
            f"drift.update.{size}_rows",
            found.pop("value"),
            f"{unit}/{'request' if unit == 'us' else 'value'}",
            goal,
            measured=f"requests of {size} rows x {FEATURES} floats into counts",
            n=len(spent),
            seed=figures.SEED,
            **found,
        )


def window_100k(*, quick: bool = False) -> Iterator[Figure]:
    """A window of 100,000 x (50 floats + 10 categories): quality and four distances."""
    rng = np.random.default_rng(figures.SEED)
    data, reference = _table(rng, 100_000), _table(rng, 100_000)
    baseline = Baseline(fit(TABLE, reference))

    def ours() -> None:
        counts = counted(baseline.profile, data)
        assert counts.missing.sum() + counts.outside.sum() >= 0
        assert not baseline.profile.constant(counts).any()
        comparison = baseline.compare(counts)
        for statistic in DISTANCES:
            statistic.distance(comparison)

    def scipy_ks() -> None:
        for column in range(FEATURES):
            stats.ks_2samp(data["x"][:, column], reference["x"][:, column])

    spent = cpu_seconds(ours, 5 if quick else 15)
    peer = min(cpu_seconds(scipy_ks, 2))
    found = figures.median(spent)
    value = found.pop("value")
    yield figures.at_most(
        "drift.window_100k",
        value,
        "s",
        0.06,
        measured="100,000 x (50 floats + 10 categories): quality, PSI, JS, KS, W1",
        n=len(spent),
        seed=figures.SEED,
        peer=f"scipy ks_2samp, 50 floats: {peer:.3g} s",
        ratio=peer / value,
        **found,
    )
    yield figures.at_most(
        "drift.window_100k.memory",
        _peak_bytes(ours) / 1e6,
        "MB",
        60.0,
        measured="peak of what the same window allocates",
        n=1,
    )


def joint_cost(*, quick: bool = False) -> Iterator[Figure]:
    """Yield the cost of correlations relative to counting alone, measured in turns."""
    rng = np.random.default_rng(figures.SEED)
    rows = rng.normal(size=(100_000, 60)).astype(np.float32)
    profile = fit(
        Schema.from_tensors([Tensor("x", "FP32", (60,))]), {"x": rows[:20_000]}
    )
    alone = replace(
        profile,
        joint=None,
        categories=(),
        counts=Counts(profile.counts.cells[:-1], profile.rows, 60),
    )
    for name, size in (("window_100k", 100_000), ("one_row_requests", 1)):
        number = len(rows) if size > 1 else 20_000
        requests: list[Rows] = [
            {"x": rows[i : i + size]} for i in range(0, number, size)
        ]

        with_it, without = profile.accumulator(), alone.accumulator()
        pairs = [
            (_window_seconds(with_it, requests), _window_seconds(without, requests))
            for _ in range(5 if quick else 41)
        ]
        # The first of either fills caches.
        found = figures.median_ratio(
            [a for a, _ in pairs[1:]], [b for _, b in pairs[1:]]
        )
        yield figures.at_most(
            f"drift.joint_cost.{name}",
            found.pop("value"),
            "times the CPU time",
            1.2 if size > 1 else 1.1,
            measured=f"a window of {number} rows x 60 floats in requests of {size} rows, "
            "with correlations over without",
            n=len(pairs) - 1,
            **found,
        )


def _window_seconds(window: Accumulator, requests: Sequence[Rows]) -> float:
    started = time.thread_time()
    for request in requests:
        window.update(request)
    window.take()
    return time.thread_time() - started


def distances(*, quick: bool = False) -> Figure:
    """All seven distances of 50 features from their counts."""
    rng = np.random.default_rng(figures.SEED)
    rows = rng.normal(size=(20_000, FEATURES)).astype(np.float32)
    baseline = Baseline(fit(FLOATS, {"x": rows}))
    counts = counted(baseline.profile, {"x": rows[:5000]})

    def all_of_them() -> None:
        comparison = baseline.compare(counts)
        for statistic in DISTANCES:
            statistic.distance(comparison)

    found = figures.median(cpu_seconds(all_of_them, 50 if quick else 300))
    return figures.at_most(
        "drift.distances",
        found.pop("value") * 1e3,
        "ms",
        0.5,
        measured=f"{len(DISTANCES)} distances of {FEATURES} features from counts",
        n=50 if quick else 300,
        ci_low=found["ci_low"] * 1e3,
        ci_high=found["ci_high"] * 1e3,
    )


def verdict(*, quick: bool = False) -> Figure:
    """One window through the monitor after 200 others, 20 features."""
    rng = np.random.default_rng(figures.SEED)
    profile = fit(MIXED, draw(rng, 10_000))
    monitor = Monitor(profile, BUDGET)
    windows = [counted(profile, draw(rng, 500)) for _ in range(60 if quick else 300)]
    spent = []
    for window in windows:
        started = time.thread_time()
        monitor.update(window)
        spent.append(time.thread_time() - started)
    found = figures.median(spent[len(spent) // 2 :])
    return figures.at_most(
        "drift.verdict",
        found.pop("value") * 1e3,
        "ms",
        10.0,
        measured="evidence of 20 features, 6 kinds of change, all remembered starts",
        n=len(spent) // 2,
        ci_low=found["ci_low"] * 1e3,
        ci_high=found["ci_high"] * 1e3,
    )


def state() -> Figure:
    """Bytes a feature after 2,000 windows."""
    rng = np.random.default_rng(figures.SEED)
    profile = fit(MIXED, draw(rng, 10_000))
    monitor, sliding = Monitor(profile, BUDGET), SlidingWindow(4)
    window = counted(profile, draw(rng, 100))
    for _ in range(2000):
        monitor.update(window)
        sliding.push(window)
    evidence = monitor._ledger._since.nbytes + monitor._ledger._total.nbytes
    panes = sum(pane.cells.nbytes for pane in sliding.panes)
    features = len(MIXED.features)
    return figures.at_most(
        "drift.state",
        (window.cells.nbytes + evidence + panes) / features / 1e3,
        "kB/feature",
        12.0,
        measured="open window, 4 sliding panes and evidence of 2,000 windows",
        n=features,
    )


def _table(rng: np.random.Generator, rows: int) -> dict[str, NDArray[np.generic]]:
    return {
        "x": rng.normal(size=(rows, FEATURES)).astype(np.float32),
        "c": rng.integers(0, 20, size=(rows, CATEGORIES)),
    }


def _peak_bytes(act: Callable[[], None]) -> int:
    tracemalloc.start()
    act()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
