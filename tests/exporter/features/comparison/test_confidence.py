"""The intervals of comparisons: exact cases, and their error rate at every look."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.features.comparison.confidence import (
    WARM_UP_PAIRS,
    BoundedMean,
    boundary,
    mean_ratio,
    variance_ratio,
)
from exporter.features.comparison.paired_intervals import (
    MIXTURE_DISCORDANT,
    paired_difference,
    proportion,
    quantile_ratio,
    walk,
)

SEED = 20_261
ALPHA = 0.05
LOOKS = np.unique(np.geomspace(60, 3000, 40).astype(int))


def errors_allowed(runs: int, alpha: float = ALPHA) -> float:
    """Four standard deviations above what the rate allows."""
    return runs * alpha + 4 * math.sqrt(runs * alpha * (1 - alpha))


def lognormal(rng, sigma=0.5, size=3000):
    return rng.lognormal(0, sigma, size)


def test_the_boundary_is_least_at_eight_times_its_mixture_and_above_one_looks():
    at = {v: boundary(v * 100.0, ALPHA, 100.0) for v in (1, 4, 8, 16, 64)}
    assert min(at, key=at.__getitem__) == 8
    # One look at a time needs 1.96; eq. 14 of Howard et al. at v = 8 m, by hand.
    assert at[8] == pytest.approx(math.sqrt(1.125 * math.log(9 / 0.05**2)))
    assert boundary(0, ALPHA) == math.inf


@pytest.mark.parametrize(
    ("statistic", "factor", "truth"),
    [
        (mean_ratio, 1.1, 0.1),
        (variance_ratio, 1.1, 0.21),
        (lambda x, y, a: quantile_ratio(x, y, 0.95, a), 1.1, 0.1),
        (lambda x, y, a: quantile_ratio(x, y, 0.5, a), 1.1, 0.1),
    ],
    ids=["mean", "variance", "p95", "p50"],
)
def test_a_ratio_of_latencies_is_held_at_every_look(statistic, factor, truth):
    rng = np.random.default_rng(SEED)
    runs, missed = 60, 0
    for _ in range(runs):
        x, y = lognormal(rng), factor * lognormal(rng)
        for look in LOOKS[::4]:
            interval = statistic(x[:look], y[:look], ALPHA)
            if interval is not None and not interval.low < truth < interval.high:
                missed += 1
                break
    assert missed <= errors_allowed(runs)


def test_a_pair_that_moves_together_is_told_apart_sooner():
    rng = np.random.default_rng(SEED)
    common = rng.lognormal(0, 1, 3000)
    x, y = common * lognormal(rng, 0.1), 1.05 * common * lognormal(rng, 0.1)
    apart = mean_ratio(x, rng.permutation(y), ALPHA)
    together = mean_ratio(x, y, ALPHA)
    assert together.low > 0 > apart.low
    quantiles = [quantile_ratio(x, z, 0.95, ALPHA) for z in (y, rng.permutation(y))]
    widths = [q.high - q.low for q in quantiles]
    assert widths[0] < widths[1]


def test_latencies_of_a_drifting_server_call_no_difference():
    # Both alike, and a load that grows tenfold: what random order protects against.
    rng = np.random.default_rng(SEED)
    load = np.linspace(1, 10, 3000)
    wrong = 0
    for _ in range(60):
        x, y = (load * rng.pareto(2.1, 3000) + 0.01 for _ in range(2))
        for look in LOOKS[::4]:
            found = (
                mean_ratio(x[:look], y[:look], ALPHA),
                quantile_ratio(x[:look], y[:look], 0.95, ALPHA),
            )
            if any(f is not None and not f.low <= 0 <= f.high for f in found):
                wrong += 1
                break
    # Two statistics, each with its own error rate.
    assert wrong <= errors_allowed(60, 2 * ALPHA)


def test_models_with_one_p95_and_two_spreads_hardly_ever_have_different_p95s():
    looks = np.unique(np.geomspace(400, 3000, 20).astype(int))
    rng = np.random.default_rng(7)
    called = 0
    for _ in range(60):
        x, y = (
            np.exp(spread * (rng.standard_normal(3000) - 1.6448536269514722))
            for spread in (0.25, 0.5)
        )
        found = (quantile_ratio(x[:look], y[:look], 0.95, ALPHA) for look in looks)
        called += any(f is not None and not f.low <= 0 <= f.high for f in found)
    assert called <= errors_allowed(60)


def test_a_p95_that_is_5_percent_worse_is_decided_within_twice_the_fixed_size():
    """Of 10,000 runs 88 % are decided where the best fixed-size test has 80 % power."""
    pairs = int(2 * fixed_size(0.95, sigma=0.25, ratio=1.05, power=0.8))
    looks = np.unique(np.geomspace(400, pairs, 20).astype(int))
    rng = np.random.default_rng(SEED)
    decided = 0
    for _ in range(60):
        x, y = lognormal(rng, 0.25, pairs), 1.05 * lognormal(rng, 0.25, pairs)
        found = (quantile_ratio(x[:look], y[:look], 0.95, ALPHA) for look in looks)
        decided += any(f is not None and f.low > 0 for f in found)
    assert decided >= 0.8 * 60


def fixed_size(q: float, *, sigma: float, ratio: float, power: float) -> float:
    """Pairs that two sample quantiles need, with the densities of lognormals known."""
    normal = NormalDist()
    value = math.exp(sigma * normal.inv_cdf(q))
    density = normal.pdf(normal.inv_cdf(q)) / (sigma * value)
    reach = normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(power)
    spread = q * (1 - q) * (1 + ratio**2) / density**2
    return reach**2 * spread / (value * (ratio - 1)) ** 2


def test_too_few_pairs_give_no_interval_or_an_open_one():
    x = np.full(WARM_UP_PAIRS - 1, 1.0)
    assert mean_ratio(x, x, ALPHA) is None
    assert variance_ratio(x, x, ALPHA) is None
    assert quantile_ratio(x[:10], x[:10], 0.95, ALPHA) is None
    rng = np.random.default_rng(SEED)
    few = quantile_ratio(
        lognormal(rng, size=400), lognormal(rng, size=400), 0.99, ALPHA
    )
    assert (few.low, few.high) == (-1.0, math.inf)
    assert few.estimate > -1


def test_a_latency_of_zero_or_less_has_no_ratio():
    x = np.ones(200)
    assert quantile_ratio(x, np.zeros(200), 0.5, ALPHA) is None
    assert mean_ratio(np.zeros(200), x, ALPHA) is None


def test_unlike_densities_widen_the_boundary_by_no_more_than_root_two():
    rng = np.random.default_rng(SEED)
    x = rng.normal(100, 1, 5000)
    y = rng.normal(100, 30, 5000)
    alike = walk(x, rng.normal(100, 1, 5000), 0.5).widening
    unlike = walk(x, y, 0.5).widening
    assert alike == pytest.approx(1, abs=0.02)
    assert 1.2 < unlike <= math.sqrt(2)
    assert MIXTURE_DISCORDANT > 0


# What is counted.
@given(hits=st.integers(0, 400), more=st.integers(0, 400))
def test_a_share_lies_in_its_interval_and_within_zero_and_one(hits, more):
    found = proportion(hits, hits + more, ALPHA)
    if not hits + more:
        assert found is None
    else:
        assert 0 <= found.low <= found.estimate <= found.high <= 1


def test_no_disagreement_at_all_is_no_proof_of_none():
    found = proportion(1000, 1000, ALPHA)
    # Beta(1/2, 1/2): the likelihood p^n falls below alpha times its mean.
    mean = math.lgamma(1000.5) - math.lgamma(1001) - math.lgamma(0.5)
    assert found.low == pytest.approx(math.exp((mean + math.log(ALPHA)) / 1000))
    assert found.high == 1
    nothing = paired_difference(0, 0, 1000, ALPHA)
    assert nothing.low == -nothing.high
    assert 0.005 < nothing.high < 0.02


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5])
def test_a_share_is_held_at_every_look(share):
    rng = np.random.default_rng(SEED)
    runs, missed = 200, 0
    for _ in range(runs):
        hits = (rng.random(3000) < share).cumsum()
        for look in LOOKS[::4]:
            found = proportion(int(hits[look - 1]), int(look), ALPHA)
            if not found.low <= share <= found.high:
                missed += 1
                break
    assert missed <= errors_allowed(runs)


def test_a_bounded_mean_is_held_at_every_look_and_closes_fast_where_nothing_varies():
    rng = np.random.default_rng(SEED)
    runs, missed = 60, 0
    for _ in range(runs):
        bounded, held = BoundedMean(ALPHA), True
        for value in rng.beta(1, 9, 1500):
            bounded.add(float(value))
            held = held and bounded.interval.low <= 0.1 <= bounded.interval.high
        missed += not held
    assert missed <= errors_allowed(runs)
    quiet = BoundedMean(ALPHA)
    for _ in range(1000):
        quiet.add(0.0)
    assert quiet.interval.low == 0
    assert quiet.interval.high < 0.01
    with pytest.raises(ValueError, match="want a value in"):
        quiet.add(1.5)


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_pairs_in_one_ratio_have_that_ratio_and_no_open_interval(noise):
    rng = np.random.default_rng(2)
    for _ in range(100):
        x = 1 + rng.random(100)
        found = mean_ratio(x, 1.1 * x * (1 + noise * rng.random(100)), 0.05)
        assert found.low <= found.estimate <= found.high
        assert found.high - found.low < 1e-6
        assert found.estimate == pytest.approx(0.1, abs=1e-6)
