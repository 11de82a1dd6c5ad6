"""The error rate and delay of comparisons in simulations."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_pairs import (
    Plan,
    difference_decisions,
    lognormal_quantile_pairs,
    mean_decisions,
    quantile_decisions,
    variance_decisions,
)
from simulated_windows import Traffic, window_decisions

from exporter.features.comparison.confidence import (
    WARM_UP_PAIRS,
    mean_ratio,
    variance_ratio,
)
from exporter.features.comparison.production_windows import Windows
from exporter.features.comparison.proportions import paired_difference
from exporter.features.comparison.quantile_ratio import quantile_ratio
from exporter.histograms.histogram import Histogram

# Four standard deviations above 5 %.
RUNS = 600
MOST_WRONG = 0.05 * RUNS + 4 * (0.05 * 0.95 * RUNS) ** 0.5


def normal(ratio: float = 1.0, sigma: float = 1.0):
    """Logarithms of latencies, in standard deviations: ranks do not change by it."""
    shift = np.log(ratio) / sigma
    return lambda rng, shape: (
        rng.standard_normal(shape),
        rng.standard_normal(shape) + shift,
    )


def growing(pairs):
    """A load that grows tenfold over a run and makes neighbours alike."""
    begin = 0

    def draw(rng, shape):
        nonlocal begin
        at = np.arange(begin, begin + shape[1]) / pairs
        begin += shape[1]
        load = (1 + 9 * at) * np.exp(np.sin(40 * at))
        return load * rng.lognormal(0, 1, shape), load * rng.lognormal(0, 1, shape)

    return draw


def test_equal_models_are_hardly_ever_called_different_at_any_look():
    plan = Plan(RUNS, 1500, seed=1)
    called = {
        "mean": mean_decisions(plan, normal()),
        "p95": quantile_decisions(plan, 0.95, normal(), 0.8, 3.2),
        "accuracy": difference_decisions(plan, 0.02, 0.02),
        "variance": variance_decisions(plan, normal()),
        "mean under a load that grows": mean_decisions(plan, growing(plan.pairs)),
        "variance under that load": variance_decisions(plan, growing(plan.pairs)),
        # Of a quantile so far out it takes more pairs to be wrong.
        "p99": quantile_decisions(Plan(RUNS, 2000, seed=1), 0.99, normal(), 1.4, 4.4),
    }
    for name, decided in called.items():
        assert (decided > 0).sum() <= MOST_WRONG, name
    # A simulation that cannot call anything would show nothing.
    assert (called["mean"] > 0).any()
    assert (called["p95"] > 0).any()
    assert (called["variance"] > 0).any()


def test_models_with_one_p95_and_two_spreads_hardly_ever_have_different_p95s():
    runs, pairs = 60, 3000
    looks = np.unique(np.geomspace(400, pairs, 20).astype(int))
    rng = np.random.default_rng(7)
    called = 0
    for _ in range(runs):
        x, y = (
            np.exp(spread * (rng.standard_normal(pairs) - 1.6448536269514722))
            for spread in (0.25, 0.5)
        )
        found = (quantile_ratio(x[:look], y[:look], 0.95, 0.05) for look in looks)
        called += any(f is not None and not f.low <= 0 <= f.high for f in found)
    # Four standard deviations above 5 %.
    assert called <= 0.05 * runs + 4 * (0.05 * 0.95 * runs) ** 0.5


def test_equal_models_in_production_are_hardly_ever_called_different_at_any_look():
    called = window_decisions(
        Traffic(), (0.5,), runs=100, windows=90, seed=3, alpha=0.05
    )
    for name, decided in called.items():
        # Four standard deviations above 5 %.
        assert (decided > 0).sum() <= 0.05 * 100 + 4 * (0.05 * 0.95 * 100) ** 0.5, name
    slower = window_decisions(
        Traffic(ratio=1.3), (0.5,), runs=5, windows=90, seed=3, alpha=0.05
    )
    assert (slower["mean"] > 0).all()
    assert (slower["p50"] > 0).all()


@pytest.mark.parametrize("ratio", [1.0, 1.15, 0.85])
def test_the_simulated_windows_are_called_when_the_comparison_calls_them(ratio):
    traffic = Traffic(ratio=ratio, challenger=30)
    found = window_decisions(traffic, (0.5, 0.9), runs=3, windows=90, seed=4)
    rng = np.random.default_rng(4)
    for run in range(3):
        served = traffic.draw(rng, 90)
        real = Windows()
        called = dict.fromkeys(found, 0)
        for window in range(90):
            real.add(*(recorded(s.seconds[s.window == window]) for s in served))
            looks = {
                "mean": real.mean_ratio(0.05),
                "p50": real.quantile_ratio(0.5, 0.05),
                "p90": real.quantile_ratio(0.9, 0.05),
            }
            for name, look in looks.items():
                if look is not None and not look.low <= 0 <= look.high:
                    called[name] = called[name] or window + 1
        assert called == {name: decided[run] for name, decided in found.items()}


def recorded(seconds):
    histogram = Histogram()
    histogram.record_many(seconds)
    return histogram


def test_the_simulated_variance_is_the_one_compared():
    plan = Plan(1, 3000, seed=6)
    draws = normal()

    def wider(rng, shape):
        x, y = draws(rng, shape)
        return x, 1.3 * y

    at = int(variance_decisions(plan, wider)[0])
    rng = np.random.default_rng(6)
    parts = [wider(rng, (1, 50)) for _ in range(0, plan.pairs, 50)]
    x, y = (np.concatenate([p[i][0] for p in parts]) for i in range(2))
    assert at > WARM_UP_PAIRS
    assert variance_ratio(x[:at], y[:at], 0.05).low > 0
    assert variance_ratio(x[: at - 1], y[: at - 1], 0.05).low <= 0


def test_a_p95_that_is_5_percent_worse_is_decided_within_twice_the_fixed_size():
    """By as many runs as the best test of fixed size decides, whatever its power."""
    optimum = {
        power: lognormal_quantile_pairs(0.95, 0.25, 1.05, power=power)
        for power in (0.8, 0.9)
    }
    plan = Plan(300, int(2 * optimum[0.9]), seed=2)
    decided = quantile_decisions(plan, 0.95, normal(1.05, 0.25), 0.8, 3.2)
    needed = np.where(decided > 0, decided, 2 * plan.pairs)
    assert np.median(needed) < 1.4 * optimum[0.8]
    for power, pairs in optimum.items():
        assert (needed <= 2 * pairs).mean() >= power, power


@pytest.mark.parametrize("seed", range(4))
def test_the_simulation_decides_when_the_comparison_does(seed):
    """Pair by pair, so that the figures are about what runs in the sidecar."""
    plan = Plan(1, 1500, seed=seed)
    draws = normal(1.5, 0.5)
    rng = np.random.default_rng(seed)
    parts = [draws(rng, (1, 250)) for _ in range(6)]
    x, y = (np.concatenate([p[i][0] for p in parts]) for i in range(2))
    at_quantile = int(quantile_decisions(plan, 0.9, draws, 0.0, 4.0)[0])
    assert at_quantile > 0
    before, after = (
        quantile_ratio(np.exp(x[:n]), np.exp(y[:n]), 0.9, 0.05)
        for n in (at_quantile - 15, at_quantile + 15)
    )
    # Bins and the density's share move the moment by some pairs.
    assert before.low <= 0 or after.low > 0
    at_mean = int(mean_decisions(plan, draws)[0])
    assert at_mean >= WARM_UP_PAIRS
    shifted = [10 + v for v in (x, y)]
    assert mean_ratio(shifted[0][:at_mean], shifted[1][:at_mean], 0.05).low > 0
    if at_mean > WARM_UP_PAIRS:
        before = mean_ratio(shifted[0][: at_mean - 1], shifted[1][: at_mean - 1], 0.05)
        assert before.low <= 0


def test_the_simulated_accuracy_is_the_exact_one():
    plan = Plan(1, 2000, seed=5)
    at = int(difference_decisions(plan, 0.05, 0.01)[0])
    drawn = np.concatenate(
        [part[0] for part in _parts(np.random.default_rng(5), plan.pairs)]
    )
    gains, losses = drawn < 0.05, (drawn >= 0.05) & (drawn < 0.06)

    def interval(n):
        return paired_difference(int(gains[:n].sum()), int(losses[:n].sum()), n, 0.05)

    assert at > 0
    assert interval(at).low > 0 >= interval(at - 1).low


def _parts(rng, pairs):
    return [rng.random((1, 250)) for _ in range(0, pairs, 250)]
