"""Drift: what counting costs.

All times are CPU time of one thread; nothing here waits or uses a second one.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import figures
import numpy as np
from scipy import stats
from timing import cpu_seconds

from drift import statistics
from drift.comparison import Baseline
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit
from drift.window import Accumulator, Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from figures import Figure
    from numpy.typing import NDArray

    from drift.reference import Profile

    Rows = dict[str, NDArray[np.generic]]

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
        counts = _counted(baseline.profile, data)
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


def _counted(profile: Profile, rows: Rows) -> Counts:
    """One closed window."""
    window = profile.accumulator()
    window.update(rows)
    return window.take()


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
