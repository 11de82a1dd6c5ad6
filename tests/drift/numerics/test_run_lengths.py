"""Run lengths against the tables the field has used for forty years."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from drift.numerics import normal, run_length
from exporter.features.spc.control_charts import (
    Cusum,
    Ewma,
    PageHinkley,
    Shewhart,
    beyond,
    limit_of,
)

# Montgomery, Introduction to Statistical Quality Control, tables 9.3 (after Lucas and
# Crosier 1982) and 9.11 (after Lucas and Saccucci 1990); by shift in sigma.
CUSUM = {
    4: {
        0: 168,
        0.25: 74.2,
        0.5: 26.6,
        0.75: 13.3,
        1: 8.38,
        1.5: 4.75,
        2: 3.34,
        3: 2.19,
    },
    5: {0: 465, 0.25: 139, 0.5: 38.0, 0.75: 17.0, 1: 10.4, 1.5: 5.75, 2: 4.01, 3: 2.57},
}
EWMA = {
    (0.4, 3.054): {0: 500, 0.25: 224, 0.5: 71.2, 0.75: 28.4, 1: 14.3, 1.5: 5.9},
    (0.25, 2.998): {0: 500, 0.25: 170, 0.5: 48.2, 0.75: 20.1, 1: 11.1, 1.5: 5.5},
    (0.2, 2.962): {0: 500, 0.25: 150, 0.5: 41.8, 0.75: 18.2, 1: 10.5, 1.5: 5.5},
    (0.1, 2.814): {0: 500, 0.25: 106, 0.5: 31.3, 0.75: 15.9, 1: 10.3, 1.5: 6.1},
    (0.05, 2.615): {0: 500, 0.25: 84.1, 0.5: 28.8, 0.75: 16.4, 1: 11.4, 1.5: 7.1},
}
SHEWHART = {0: 370.4, 1: 43.9, 2: 6.30, 3: 2.00}


@pytest.mark.parametrize("limit", CUSUM)
def test_a_cusum_runs_as_long_as_the_table_says(limit) -> None:
    for shift, published in CUSUM[limit].items():
        assert run_length.cusum(0.5, limit, shift) == pytest.approx(
            published, rel=0.005
        )


@pytest.mark.parametrize("chart", EWMA, ids=str)
def test_an_ewma_runs_as_long_as_the_table_says(chart) -> None:
    for shift, published in EWMA[chart].items():
        assert run_length.ewma(*chart, shift) == pytest.approx(published, rel=0.01)


def test_a_shewhart_chart_runs_as_long_as_the_table_says() -> None:
    for shift, published in SHEWHART.items():
        assert run_length.shewhart(3, shift) == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(
    ("limit", "in_control", "one_sigma"), [(4, 149, 5.29), (5, 430, 6.35)]
)
def test_a_head_start_is_as_fast_as_lucas_and_crosier_say(
    limit, in_control, one_sigma
) -> None:
    found = [run_length.cusum(0.5, limit, shift, head_start=0.5) for shift in (0, 1)]
    assert found == pytest.approx([in_control, one_sigma], rel=0.005)


def test_one_side_runs_twice_as_long_as_two() -> None:
    assert run_length.cusum(0.5, 4, sides="upper") == pytest.approx(
        2 * run_length.cusum(0.5, 4)
    )
    assert run_length.shewhart(3, sides="lower") == pytest.approx(
        2 * run_length.shewhart(3)
    )
    assert run_length.ewma(0.2, 2.962, sides="upper") == pytest.approx(1000, rel=0.02)
    assert run_length.ewma(0.2, 2.962, -1, sides="lower") == run_length.ewma(
        0.2, 2.962, 1, "upper"
    )


CHARTS = [Shewhart(), Ewma(0.1), Cusum(0.25, 0.5), Cusum(0.5), PageHinkley(0.25)]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda c: f"{c.kind}")
@pytest.mark.parametrize("sides", ["both", "lower"])
def test_the_chart_itself_runs_as_long_as_its_limit_promises(chart, sides) -> None:
    wanted, runs = 100.0, 4000
    limit = limit_of(chart, wanted, sides)
    for shift, spread in ((0.0, 1.0), (-0.4, 1.3)):
        lengths = simulated(chart, limit, sides, runs, shift, spread)
        error = lengths.std() / math.sqrt(runs)
        promised = chart.run_length(limit, shift, sides, spread)
        assert abs(lengths.mean() - promised) < 4 * error
        assert error < 0.03 * promised


def sums_by_definition(z, reference, mean=0.0):
    """Both sums of a CUSUM: the largest of all sums that end with the latest sample."""
    moved = np.asarray(z) - mean
    return [
        max(0.0, *np.cumsum(sign * moved[::-1] - reference)) for sign in (1.0, -1.0)
    ]


@pytest.mark.parametrize(
    "chart", [*CHARTS, PageHinkley(0.25, 5)], ids=lambda c: f"{c.kind}"
)
def test_the_statistics_are_those_of_the_definition(chart) -> None:
    z = np.random.default_rng(8).normal(0.4, 1, 60)
    limit = 1e6
    memory = chart.fresh(limit) * 0
    for number in range(1, len(z) + 1):
        seen = z[:number]
        memory = chart.step(memory, z[number - 1], limit)
        if isinstance(chart, Shewhart):
            wanted = [z[number - 1], -z[number - 1]]
        elif isinstance(chart, Ewma):
            weights = chart.weight * (1 - chart.weight) ** np.arange(number)[::-1]
            standard = weights @ seen / math.sqrt(chart.weight / (2 - chart.weight))
            wanted = [standard, -standard]
        elif isinstance(chart, Cusum):
            wanted = sums_by_definition(seen, chart.reference)
        else:
            before = np.arange(number)
            means = np.concatenate([[0.0], np.cumsum(seen)[:-1]])
            means = means / (chart.learnt_from + before)
            wanted = sums_by_definition(seen, chart.delta, means)
        assert chart.statistics(memory) == pytest.approx(tuple(wanted))


def simulated(chart, limit, sides, runs, shift, spread):
    rng = np.random.default_rng(6)
    memory = chart.fresh(limit, (runs,))
    alive = np.arange(runs)
    lengths = np.zeros(runs)
    while alive.size:
        z = rng.normal(shift, spread, alive.size)
        memory = chart.step(memory, z, limit)
        lengths[alive] += 1
        quiet = ~beyond(chart, memory, limit, sides)
        alive, memory = alive[quiet], memory[:, quiet]
    return lengths


def failures_by_equations(failure, up, limit):
    """Mean samples from 0 of a CUSUM of failures, of the equations of its states."""
    steps = np.zeros((limit, limit))
    for state in range(limit):
        steps[state, max(0, state - 1)] += 1 - failure
        if state + up < limit:
            steps[state, state + up] += failure
    return np.linalg.solve(np.eye(limit) - steps, np.ones(limit))[0]


@pytest.mark.parametrize(("failure", "up"), [(0.1, 5), (0.5, 1), (0.02, 12), (0.3, 2)])
@pytest.mark.parametrize("wanted", [2.0, 40.0, 1e4])
def test_a_cusum_of_failures_is_exact(failure, up, wanted) -> None:
    limit, length = run_length.bernoulli_limit(failure, up, wanted, 60)
    assert length == pytest.approx(failures_by_equations(failure, up, limit))
    assert length >= wanted or limit == 60
    assert limit == 1 or failures_by_equations(failure, up, limit - 1) < wanted


def test_a_run_length_that_no_limit_gives_is_refused() -> None:
    with pytest.raises(ValueError, match="want above 1"):
        limit_of(Shewhart(), 1.0, "both")
    with pytest.raises(ValueError, match="no limit gives"):
        run_length.limit_for(lambda _: 2.0, 10)


def test_the_normal_distribution_is_scipys() -> None:
    x = np.linspace(-9, 9, 37)
    assert normal.density(x) == pytest.approx(stats.norm.pdf(x), rel=1e-9)
    assert normal.below(x) == pytest.approx(stats.norm.cdf(x), rel=1e-9)
    assert [normal.above(v) for v in x] == pytest.approx(stats.norm.sf(x), rel=1e-9)
    for probability in (1e-12, 0.025, 0.4, 0.5, 0.6, 0.975, 1 - 1e-9):
        wanted = stats.norm.ppf(probability)
        assert normal.quantile(probability) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("freedom", [3, 5, 10, 40])
def test_the_chi_square_distribution_is_near_scipys(freedom) -> None:
    for probability in (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999):
        error = 2e-4 if probability >= 0.99 else 0.006
        value = stats.chi2.ppf(probability, freedom)
        above = normal.chi_square_above(value, freedom)
        assert above == pytest.approx(1 - probability, abs=error)
        found = normal.chi_square_quantile(probability, freedom)
        assert stats.chi2.cdf(found, freedom) == pytest.approx(probability, abs=error)
    assert normal.chi_square_above(0.0, freedom) == 1
    assert normal.chi_square_quantile(1e-300, 1.0) == 0


@pytest.mark.parametrize("chart", CHARTS, ids=lambda c: f"{c.kind}")
@pytest.mark.parametrize("wanted", [20.0, 20_000.0, 1e6, 4e8])
def test_a_limit_is_found_for_every_run_length_that_may_be_asked_for(
    chart, wanted
) -> None:
    limit = limit_of(chart, wanted, "both")
    assert chart.run_length(limit, 0.0, "both") == pytest.approx(wanted, rel=1e-3)
