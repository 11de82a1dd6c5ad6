"""Comparisons: do they keep their error rate at every look, and how soon do they decide?

Seeded simulations, vectorised over the runs, in one thread; `comparing.py` has them.
"""

from __future__ import annotations

import math
import time
from statistics import NormalDist
from typing import TYPE_CHECKING

import figures
import numpy as np
from comparing import (
    Plan,
    difference_decisions,
    lognormal_quantile_pairs,
    mean_decisions,
    quantile_decisions,
    variance_decisions,
)
from comparing_windows import Traffic, window_decisions

from exporter.comparison.confidence import mean_ratio, variance_ratio
from exporter.comparison.quantile_ratio import quantile_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from comparing import Draw, Floats
    from figures import Figure
    from numpy.typing import NDArray

ALPHA = 0.05
# Of the tests of fixed size that ours is held against; 80 % is the usual one.
POWERS = (0.8, 0.9, 0.95)
# Logarithms in standard deviations: what the quantiles' walks are kept between.
LOW, HIGH = 0.8, 3.4


def null_runs(*, quick: bool = False) -> Iterator[Figure]:
    """Two that are alike, looked at after every pair: how many are called different."""
    runs = 500 if quick else 10_000
    cases: tuple[tuple[str, Callable[[Plan], NDArray[np.int64]], int], ...] = (
        ("mean.lognormal", lambda p: mean_decisions(p, _lognormal), 10_000),
        ("mean.pareto", lambda p: mean_decisions(p, _pareto), 10_000),
        (
            "mean.drifting_load",
            lambda p: mean_decisions(p, _Drifting(p.pairs).draw),
            10_000,
        ),
        (
            "p95",
            lambda p: quantile_decisions(p, 0.95, _normal(), LOW, HIGH),
            10_000,
        ),
        (
            "p50",
            lambda p: quantile_decisions(p, 0.5, _normal(), -1.2, 1.2),
            5_000,
        ),
        (
            "p99",
            lambda p: quantile_decisions(p, 0.99, _normal(), 1.4, 4.4),
            20_000,
        ),
        ("variance.lognormal", lambda p: variance_decisions(p, _narrow), 10_000),
        (
            "variance.drifting_load",
            lambda p: variance_decisions(p, _Drifting(p.pairs).draw),
            10_000,
        ),
        ("accuracy", lambda p: difference_decisions(p, 0.02, 0.02), 10_000),
    )
    for place, (name, decide, pairs) in enumerate(cases):
        plan = Plan(runs, pairs // 5 if quick else pairs, figures.SEED + place)
        wrong = int((decide(plan) > 0).sum())
        yield _share(
            f"comparison.false_calls.{name}",
            wrong,
            runs,
            ALPHA,
            f"{runs} runs of {plan.pairs} pairs that are alike, looked at after each",
        )


def null_windows(*, quick: bool = False) -> Iterator[Figure]:
    """Mode `ab` of two that are alike: how many are called different at any look."""
    runs, windows = (100, 120) if quick else (2_000, 200)
    for name, traffic in (
        ("even", Traffic(champion=50, challenger=50)),
        ("canary", Traffic(champion=90, challenger=10)),
    ):
        called = window_decisions(
            traffic,
            (0.5, 0.95, 0.99),
            runs=runs,
            windows=windows,
            seed=figures.SEED,
        )
        for metric, decided in called.items():
            yield _share(
                f"comparison.false_calls.ab.{name}.{metric}",
                int((decided > 0).sum()),
                runs,
                ALPHA,
                f"{runs} runs of {windows} windows of {traffic.champion:g} and "
                f"{traffic.challenger:g} requests, alike, under a load that grows "
                "tenfold, looked at after each",
            )


def same_p95_other_shape(*, quick: bool = False) -> Figure:
    """The same p95 and twice the spread: a difference of shape is none of the p95."""
    runs, pairs = (40, 3_000) if quick else (1_000, 10_000)
    looks = np.unique(np.geomspace(400, pairs, 30).astype(int))
    rng = np.random.default_rng(figures.SEED)
    z = 1.6448536269514722
    wrong = 0
    for _ in range(runs):
        x = np.exp(0.25 * (rng.standard_normal(pairs) - z))
        y = np.exp(0.5 * (rng.standard_normal(pairs) - z))
        for look in looks:
            found = quantile_ratio(x[:look], y[:look], 0.95, ALPHA)
            if found is not None and not found.low <= 0 <= found.high:
                wrong += 1
                break
    return _share(
        "comparison.false_calls.p95_of_other_shape",
        wrong,
        runs,
        ALPHA,
        f"{runs} runs of {pairs} pairs with the same p95 and twice the spread, 30 looks",
    )


def delay(*, quick: bool = False) -> Iterator[Figure]:
    """A p95 that is 5 % worse: pairs until it is called, beside one look of a size.

    The optimum of fixed size has a power: so many of its runs call the difference. Within
    twice its pairs at least as many of ours must.
    """
    runs = 200 if quick else 10_000
    for sigma in (0.25, 0.5):
        best = lognormal_quantile_pairs(0.95, sigma, 1.05)
        # Of the wider one every run takes four times as long.
        plan = Plan(
            runs if sigma < 0.3 else max(runs // 4, 200), int(3.4 * best), figures.SEED
        )
        decided = quantile_decisions(plan, 0.95, _normal(1.05, sigma), LOW, HIGH)
        needed = np.where(decided > 0, decided, np.iinfo(np.int64).max)
        found = _median(needed / best)
        yield figures.at_most(
            f"comparison.delay.p95_5_percent.sigma_{sigma}",
            found.pop("value"),
            "x fixed size",
            2.0,
            measured=(
                "median pairs until a p95 5 % worse is called, over the "
                f"{best:.0f} that the best test of fixed size needs for 80 % power"
            ),
            n=plan.runs,
            seed=figures.SEED,
            peer=f"z test of two quantiles, densities known: {best:.0f} pairs",
            **{
                f"decided_within_{times}": float((needed <= times * best).mean())
                for times in (1, 2, 3)
            },
            fixed_size_of_twice_decides=_power(2.0),
            **found,
        )
        for power in POWERS:
            optimum = lognormal_quantile_pairs(0.95, sigma, 1.05, power=power)
            yield _share(
                f"comparison.undecided.p95_5_percent.sigma_{sigma}.power_{power:g}",
                int((needed > 2 * optimum).sum()),
                plan.runs,
                round(1 - power, 2),
                f"{plan.runs} runs whose p95 is 5 % worse: not called within twice the "
                f"{optimum:.0f} pairs that the best test of fixed size needs to call it "
                f"in {power:.0%} of runs",
            )


def look() -> Iterator[Figure]:
    """What one look at a comparison of 50,000 pairs takes."""
    rng = np.random.default_rng(figures.SEED)
    x, y = (rng.lognormal(0, 0.5, 50_000) for _ in range(2))
    statistics: tuple[tuple[str, Callable[[Floats, Floats], object], float], ...] = (
        ("p95", lambda a, b: quantile_ratio(a, b, 0.95, ALPHA), 500.0),
        ("mean", lambda a, b: mean_ratio(a, b, ALPHA), 50.0),
        ("variance", lambda a, b: variance_ratio(a, b, ALPHA), 50.0),
    )
    for name, statistic, goal in statistics:
        spent = []
        for _ in range(7):
            started = time.thread_time()
            statistic(x, y)
            spent.append(1e3 * (time.thread_time() - started))
        found = figures.median(spent)
        yield figures.at_most(
            f"comparison.look.{name}",
            found.pop("value"),
            "ms",
            goal,
            measured="CPU time of one interval of 50,000 pairs",
            n=len(spent),
            seed=figures.SEED,
            **found,
        )


def _power(times: float) -> float:
    """What one look decides at so many times the size that gives it 80 %."""
    normal = NormalDist()
    reach = normal.inv_cdf(1 - ALPHA / 2)
    return normal.cdf(math.sqrt(times) * (reach + normal.inv_cdf(0.8)) - reach)


def _share(name: str, hits: int, runs: int, goal: float, measured: str) -> Figure:
    """A share of runs with its Wilson interval."""
    z = 1.96
    share = hits / runs
    centre = (share + z * z / (2 * runs)) / (1 + z * z / runs)
    half = (
        z
        * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
        / (1 + z * z / runs)
    )
    return figures.at_most(
        name,
        share,
        "share of runs",
        goal,
        measured=measured,
        n=runs,
        seed=figures.SEED,
        ci_low=max(0.0, centre - half),
        ci_high=centre + half,
    )


def _median(values: Floats) -> dict[str, float]:
    """As `figures.median`, for more values than its exact sum of binomials can take."""
    ordered = np.sort(values)
    reach = 0.98 * math.sqrt(len(ordered))
    low, high = (round(len(ordered) / 2 + sign * reach) for sign in (-1, 1))
    return {
        "value": float(np.median(ordered)),
        "ci_low": float(ordered[low]),
        "ci_high": float(ordered[high]),
    }


def _normal(ratio: float = 1.0, sigma: float = 1.0) -> Draw:
    shift = math.log(ratio) / sigma
    return lambda rng, shape: (
        rng.standard_normal(shape),
        rng.standard_normal(shape) + shift,
    )


def _lognormal(
    rng: np.random.Generator, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    return rng.lognormal(0, 1, shape), rng.lognormal(0, 1, shape)


def _narrow(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Latencies whose fourth moments are in sight."""
    return rng.lognormal(0, 0.5, shape), rng.lognormal(0, 0.5, shape)


def _pareto(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Tails so heavy that the variance is infinite."""
    return rng.pareto(1.8, shape), rng.pareto(1.8, shape)


class _Drifting:
    """A load that grows tenfold over the run and makes neighbours alike."""

    def __init__(self, pairs: int) -> None:
        self._pairs, self._at = pairs, 0

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        at = np.arange(self._at, self._at + shape[1]) / self._pairs
        self._at += shape[1]
        load = (1 + 9 * at) * np.exp(np.sin(40 * at))
        return load * rng.lognormal(0, 1, shape), load * rng.lognormal(0, 1, shape)
