"""Ranks and intervals against scipy, exact arithmetic and resampling."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from exporter.histograms.buckets import GROWTH, UPPER, ZERO_THRESHOLD, upper_bound
from exporter.histograms.histogram import Histogram
from exporter.histograms.quantiles import (
    RankedBuckets,
    interval_ranks,
    minimum_count,
    quantile_rank,
    supports,
)

SERVED = [0.5, 0.9, 0.95, 0.99, 0.999]
RUNS = 1000


# Products that rounding pushes above a whole number.
@example(100, 700)
@example(100, 1_400)
@example(1000, 9_990)
@given(st.integers(1, 10**6), st.integers(0, 10**4))
def test_a_rank_is_the_least_with_that_share_of_the_sample(count, ten_thousandths):
    share = Fraction(ten_thousandths, 10_000)
    expected = max(math.ceil(share * count), 1)
    assert quantile_rank(count, ten_thousandths / 10_000) == expected


def test_a_rank_needs_a_sample():
    with pytest.raises(ValueError, match="count is 0; a quantile needs at least 1"):
        quantile_rank(0, 0.5)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("q", [0.0001, 0.01, 0.3, *SERVED, 0.9999])
def test_the_minimum_count_is_the_first_whose_extremes_enclose_the_quantile(
    q, confidence
):
    tail = (1 - confidence) / 2
    least = minimum_count(q, confidence)
    both = [max(q**n, (1 - q) ** n) <= tail for n in (least - 1, least, least + 1)]
    assert both == [False, True, True]
    assert not supports(least - 1, q, confidence)
    assert supports(least, q, confidence)
    assert interval_ranks(least - 1, q, confidence) is None
    assert interval_ranks(least, q, confidence) is not None


@pytest.mark.parametrize("q", [1e-300, 1 - 2**-53])
def test_extreme_quantiles_are_never_supported_rather_than_an_error(q):
    assert not supports(10**9, q)


@pytest.mark.parametrize(
    ("q", "confidence"),
    [(0.0, 0.95), (1.0, 0.95), (math.nan, 0.95), (0.5, 0.0), (0.5, 1.0), (0.5, 95.0)],
)
def test_intervals_need_q_and_confidence_inside_0_to_1(q, confidence):
    with pytest.raises(ValueError, match=r"q is|confidence is"):
        supports(100, q, confidence)
    with pytest.raises(ValueError, match=r"q is|confidence is"):
        Histogram().quantile_interval(q, confidence)


@pytest.mark.parametrize("q", [0.05, *SERVED])
@pytest.mark.parametrize("multiple", [1.0, 1.01, 1.3, 2.0, 5.0, 30.0, 1000.0])
def test_each_tail_holds_two_and_a_half_percent_by_the_incomplete_beta(q, multiple):
    count = math.ceil(minimum_count(q) * multiple)
    low, high = interval_ranks(count, q)
    assert 1.0 <= low < high <= count
    # P(X_(r) <= x_q) = P(B >= r) = I_q(r, n - r + 1), for real r as well (Hutson 1999).
    below = 1.0 - special.betainc(low, count - low + 1.0, q)
    above = special.betainc(high, count - high + 1.0, q)
    assert below == pytest.approx(0.025, abs=0.001)
    assert above == pytest.approx(0.025, abs=0.001)


@given(
    st.lists(st.floats(1e-6, 3600.0), min_size=6, max_size=300),
    st.sampled_from([0.3, 0.5, 0.7, 0.9, 0.95]),
)
def test_an_interval_encloses_the_estimate_and_stays_within_the_extremes(values, q):
    histogram = histogram_of(values)
    interval = histogram.quantile_interval(q)
    assert (interval is not None) == supports(len(values), q)
    if interval is not None:
        low, high = interval
        assert histogram.min <= low <= histogram.quantile(q) <= high <= histogram.max


@given(
    st.lists(st.floats(1e-6, 3600.0), min_size=6, max_size=300),
    st.sampled_from([0.5, 0.7, 0.9, 0.95]),
)
def test_an_interval_is_that_of_the_sorted_values_to_within_a_bucket(values, q):
    interval = histogram_of(values).quantile_interval(q)
    if interval is None:
        return
    exact = exact_interval(np.sort(values), q)
    assert interval == pytest.approx(exact, rel=0.0222)


@pytest.mark.parametrize("value", [0.0, 1e-12, 0.0101, 1.0, 3e6])
def test_a_constant_has_an_interval_of_no_width(value):
    histogram = Histogram()
    histogram.record(value, 5000)
    assert histogram.quantile_interval(0.99) == (value, value)


def test_an_interval_of_a_difference_ends_at_its_bucket_when_extremes_are_unknown():
    histogram = Histogram()
    histogram.record_many([0.001, 1.0])
    snapshot = histogram.copy()
    histogram.record(0.0101, 1000)
    low, high = histogram.since(snapshot).quantile_interval(0.99)
    assert low < 0.0101 < high
    assert high / low == pytest.approx(2 ** (1 / 32))


def test_an_interval_over_the_zero_bucket_reaches_into_it():
    # Few are in the bucket after it, as many as chance may put beside none.
    histogram = histogram_of([0.0] * 50 + [1.01 * ZERO_THRESHOLD] * 2 + [0.01] * 48)
    assert histogram.quantile(0.5) == 0.0
    assert histogram.quantile(0.53) == pytest.approx(0.01, rel=0.0109)
    low, high = histogram.quantile_interval(0.5)
    assert low == 0.0
    assert high == 0.01


def evenly(buckets, each):
    """The same number of values in every bucket from (2^(-1/32), 1] on."""
    shares = (np.arange(buckets * each) + 0.5) / each
    return GROWTH ** (shares - 1.0)


def test_ends_in_different_buckets_are_interpolated_inside_them():
    values = evenly(200, 100)
    interval = histogram_of(values).quantile_interval(0.9)
    assert interval == pytest.approx(exact_interval(values, 0.9), rel=1e-6)


@pytest.mark.parametrize(
    ("counts", "inside"),
    [
        ([100, 100, 35], True),  # half, but for chance: 2 * 35 + 3 * sqrt(100)
        ([100, 100, 34], False),
        ([50, 100, 50], True),
        ([49, 100, 50], False),
    ],
)
def test_a_bucket_unlike_its_neighbours_is_not_interpolated(counts, inside):
    running = np.cumsum(counts)
    ranked = RankedBuckets(
        999, np.array(counts), running, 0, int(running[-1]), -math.inf, math.inf
    )
    low, _ = ranked.between(int(running[0]) + 50, int(running[1]) + 10)
    assert low / UPPER[999] == pytest.approx(GROWTH**0.495 if inside else 1.0)


def test_both_ends_in_one_bucket_give_the_whole_bucket():
    values = evenly(20, 10_000)
    interval = histogram_of(values).quantile_interval(0.525)
    assert interval == (upper_bound(9), upper_bound(10))


def test_an_interval_is_widened_to_hold_its_estimate():
    values = evenly(100, 1000)
    q = 0.9005  # at 5 % of its bucket, of which the estimate is the middle
    histogram = histogram_of(values)
    low, high = histogram.quantile_interval(q)
    assert low == pytest.approx(exact_interval(values, q)[0], rel=1e-6)
    assert high == histogram.quantile(q) > exact_interval(values, q)[1]


def test_an_interval_beyond_the_last_bound_reaches_to_the_largest_value():
    values = np.linspace(2e6, 3e6, 1000)
    low, high = histogram_of(values).quantile_interval(0.5)
    assert (low, high) == (2e6, 3e6)


def histogram_of(values):
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


def exact_interval(ordered, q):
    """The fractional order statistics of the values themselves."""
    ranks = np.array(interval_ranks(len(ordered), q))
    return tuple(np.interp(ranks, np.arange(1, len(ordered) + 1), ordered))


def coverage(draw, q, count, truth, seed):
    """The share of seeded runs whose interval holds the true quantile."""
    generator = np.random.default_rng(seed)
    hits = 0
    for _ in range(RUNS):
        low, high = histogram_of(draw(generator, count)).quantile_interval(q)
        hits += low <= truth <= high
    return hits / RUNS


# How to draw each law, and its quantile function.
WIDE = {
    "lognormal": (
        lambda g, n: 0.02 * g.lognormal(0.0, 0.5, n),
        stats.lognorm(0.5, scale=0.02).ppf,
    ),
    "narrow lognormal": (
        lambda g, n: 0.02 * g.lognormal(0.0, 0.2, n),
        stats.lognorm(0.2, scale=0.02).ppf,
    ),
    "exponential": (
        lambda g, n: g.exponential(0.01, n),
        stats.expon(scale=0.01).ppf,
    ),
    "shifted exponential": (
        lambda g, n: 0.005 + g.exponential(0.002, n),
        stats.expon(loc=0.005, scale=0.002).ppf,
    ),
    "pareto": (
        lambda g, n: 0.01 * (1.0 + g.pareto(2.0, n)),
        stats.pareto(2.0, scale=0.01).ppf,
    ),
    "gamma": (
        lambda g, n: g.gamma(20.0, 0.0005, n),
        stats.gamma(20.0, scale=0.0005).ppf,
    ),
}
SIZES = [(0.99, 400), (0.99, 1000), (0.99, 10_000), (0.999, 4000), (0.999, 10_000)]


@pytest.mark.parametrize(("q", "count"), SIZES)
@pytest.mark.parametrize("name", WIDE)
def test_the_interval_covers_the_true_quantile_in_93_to_97_percent_of_runs(
    name, q, count
):
    """Bucket rounding included; 1,000 runs spread by 0.7 points (one sigma)."""
    draw, quantile = WIDE[name]
    assert 0.93 <= coverage(draw, q, count, quantile(q), seed=count) <= 0.97


# Where a sample tells more than a bucket can hold: how to draw, and the true p99.
FINER_THAN_A_BUCKET = {
    "normal, sigma 1 %": (
        lambda g, n: g.normal(0.01, 0.0001, n),
        stats.norm(0.01, 0.0001).ppf(0.99),
    ),
    "normal, sigma 2 %": (
        lambda g, n: g.normal(0.01, 0.0002, n),
        stats.norm(0.01, 0.0002).ppf(0.99),
    ),
    "end of a range": (lambda g, n: g.uniform(0.001, 0.002, n), 0.00199),
    "timeouts": (
        lambda g, n: np.where(g.random(n) < 0.95, g.lognormal(-4.0, 0.5, n), 1.003),
        1.003,
    ),
    "a clock of 1 ms": (
        lambda g, n: np.ceil(g.gamma(20.0, 0.5, n)) / 1000,
        math.ceil(stats.gamma(20.0, scale=0.5).ppf(0.99)) / 1000,
    ),
}


@pytest.mark.parametrize("count", [400, 3000, 30_000])
@pytest.mark.parametrize("name", FINER_THAN_A_BUCKET)
def test_where_buckets_are_too_coarse_the_interval_covers_more_and_never_less(
    name, count
):
    draw, truth = FINER_THAN_A_BUCKET[name]
    assert coverage(draw, 0.99, count, truth, seed=count) >= 0.95
