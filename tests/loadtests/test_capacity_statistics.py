"""The statistics of a capacity search, against second implementations and known queues."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats
from simulated_queues import (
    ALLOWED,
    QUEUES,
    Queue,
    one_server,
    requests_of,
    run_of,
    searching,
)

from drift.numerics.dependence import LEAST_FREEDOM
from loadtests.capacity.estimate import Levels, crossing, estimate, widening
from loadtests.capacity.miss_trend import trend
from loadtests.capacity.observation import (
    LEAST,
    Observation,
    _stands_out,
    observation,
    settled,
    settled_alike,
)
from loadtests.capacity.search import Search, SearchSettings
from loadtests.load_objective import parse


def test_a_crossing_is_where_an_exponential_share_reaches_what_is_allowed() -> None:
    rates = np.array([100.0, 120.0, 144.0])
    shares = 1e-3 * (rates / 100.0) ** 10
    floor = np.full(3, 1e-6)
    assert crossing(rates, shares, floor, 0.01) == pytest.approx(
        100 * 10 ** (1 / 10), rel=1e-6
    )
    assert crossing(rates, shares, floor, 0.9) == np.inf
    assert crossing(rates, shares, floor, 1e-5) == 0.0


def test_a_trend_is_the_poisson_likelihood_s_line() -> None:
    rng = np.random.default_rng(3)
    rates = np.array([90.0, 95.0, 100.0, 106.0, 112.0])
    counts = np.full(5, 4000.0)
    misses = rng.poisson(counts * 0.01 * (rates / 100) ** 12).astype(float)
    found = trend(rates, counts, misses)

    def unlikely(line):
        mean = counts * np.exp(line[0] + line[1] * np.log(rates / 100))
        return (mean - misses * np.log(mean)).sum()

    theirs = optimize.minimize(unlikely, [-4.6, 10], method="Nelder-Mead", tol=1e-9).x
    assert found is not None
    around = np.array([95.0, 105.0])
    expected = np.exp(theirs[0] + theirs[1] * np.log(around / 100))
    assert found.shares(around) == pytest.approx(expected, rel=1e-6)
    assert trend(rates, counts, np.zeros(5)) is None
    assert trend(rates, counts, misses[::-1]) is None


@pytest.mark.parametrize("count", [10, 24, 25])
def test_mser_leaves_out_the_start_whose_absence_makes_the_mean_surest(count) -> None:
    rng, found = np.random.default_rng(4), set()
    for decay in (0.1, 1.0, 2.0, count / 4, count / 2, count) * 10:
        values = rng.normal(1, 0.3, count) + 3 * np.exp(-np.arange(count) / decay)
        rest = [values[first:] for first in range(count - LEAST // 2)]
        cut = int(np.argmin([each.var() / each.size for each in rest]))
        found.add(settled(values))
        assert settled(values) == (cut if cut <= count // 2 else None)
    assert (None in found) == (count > 10)
    assert settled(values[:9]) == 0


@pytest.mark.parametrize("first", [1, 4])
def test_a_start_stands_out_beyond_three_sigma_of_the_rest(first) -> None:
    rest = np.random.default_rng(8).normal(size=9)
    most = stats.t.isf(stats.norm.sf(3), 8) * np.sqrt(1 / first + 1 / 9)
    for part, found in ((0.99, False), (1.01, True), (-1.01, True)):
        start = np.full(first, rest.mean() + part * most * rest.std(ddof=1))
        assert _stands_out(np.concatenate([start, rest]), first) is found
    assert not _stands_out(np.concatenate([start, rest]), 0)


@pytest.mark.parametrize(
    ("seconds", "edges"),
    [(6.0, np.linspace(0.5, 6, 23)), (1.4, np.linspace(0.35, 1.4, 5))],
)
def test_a_run_is_counted_in_blocks_of_time_after_its_start(seconds, edges) -> None:
    rng, slo = np.random.default_rng(9), parse("p99<20ms,p50<10ms")
    requests = requests_of(QUEUES[0], 0.9 * QUEUES[0].capacity, seconds, rng)
    found = observation(200.0, requests, slo, seconds=seconds)
    assert (found.warmup_seconds, found.settled) == (edges[0], True)
    assert found.block_seconds == pytest.approx(edges[1] - edges[0])
    due, waits = requests.intended, requests.done - requests.intended
    assert found.counts.tolist() == np.histogram(due, edges)[0].tolist()
    for term, limit in enumerate((0.02, 0.01)):
        late = np.histogram(due[waits > limit], edges)[0]
        assert found.misses[:, term].tolist() == late.tolist()
    mean = stats.binned_statistic(due, waits, "mean", edges).statistic
    assert found.waits == pytest.approx(mean, nan_ok=True)


def runs_of_a_queue(count, extra):
    """Runs of 6 s at 80 % of the capacity, their waits longer by `extra(run, due)`."""
    queue, rng, slo = QUEUES[0], np.random.default_rng(5), parse("p99<20ms")
    runs = []
    for run in range(count):
        requests = requests_of(queue, 0.8 * queue.capacity, 6.0, rng)
        requests.done[:] += extra(run, requests.intended)
        runs.append(observation(200.0, requests, slo, seconds=6.0))
    return runs


def test_a_burst_at_the_start_of_one_run_is_no_warm_up() -> None:
    """It is load as any other: leaving it out would make the server look better."""
    runs = runs_of_a_queue(6, lambda run, due: (run == 2) * (due < 1.5) * 0.1)
    kept = settled_alike(runs)
    assert sum(run.misses.sum() for run in kept) > 100
    assert {run.warmup_seconds for run in kept} == {0.5}


def test_what_every_run_starts_with_is_left_out_of_all_alike() -> None:
    runs = runs_of_a_queue(6, lambda _, due: (due < 1.5) * 0.1)
    (left_out,) = {run.warmup_seconds for run in settled_alike(runs)}
    assert 1.5 <= left_out <= 3.25
    assert all(run.settled for run in settled_alike(runs))
    # Too few to tell a warm-up from a burst.
    assert settled_alike(runs[:4]) == runs[:4]
    rising = settled_alike(runs_of_a_queue(6, lambda _, due: due * 0.1))
    assert {(run.warmup_seconds, run.settled) for run in rising} == {(3.25, False)}


def test_runs_with_hardly_a_request_keep_what_they_have() -> None:
    slo, rng = parse("p99<20ms"), np.random.default_rng(6)
    runs = [
        observation(2.0, requests_of(QUEUES[0], 2.0, 30.0, rng), slo, seconds=30.0)
        for _ in range(8)
    ]
    assert all(run.requests for run in settled_alike(runs))


def bursty_runs(rng, bursts, seconds=6.0):
    """24 runs beside the boundary; each miss is of one of `bursts` stalls of 0.3 s."""
    rates = np.tile([94.0, 100.0, 106.0, 112.0], 6)
    runs = []
    for number, rate in enumerate(rates):
        due = np.sort(rng.random(int(10 * rate * seconds))) * seconds
        at = rng.uniform(1.0, seconds - 1.0)
        late = np.abs(due - at) < 0.15 if number in bursts else due < 0
        runs.append(run_of(rate, due, late, seconds, 0.25))
    return runs


def runs_at(*levels):
    """Runs at rates, with the requests and misses of their blocks."""
    return [
        Observation(
            rate, np.array(counts, float), np.array(missed, float)[:, None], 0.5
        )
        for rate, counts, missed in levels
    ]


def test_levels_are_sums_over_runs_and_their_blocks_are_halves_of_runs() -> None:
    levels = Levels.of(
        runs_at(
            (10.0, [1, 2, 3, 4], [0, 1, 0, 2]),
            (20.0, [5], [1]),
            (10.0, [0, 0, 2], [0, 0, 2]),
        )
    )
    assert levels.rates.tolist() == [10, 20]
    assert (levels.counts.tolist(), levels.misses.tolist()) == ([12, 5], [[5], [1]])
    assert levels.level.tolist() == [0, 0, 1, 0]
    assert levels.block_counts.tolist() == [3, 7, 5, 2]
    assert levels.block_misses.tolist() == [[1], [2], [1], [2]]
    # A quarter of a miss, and no more than a quarter of what is allowed.
    floors = levels.floors(np.array([0.02, 0.5]))
    assert floors == pytest.approx(np.array([[0.005, 0.25 / 12], [0.005, 0.05]]))


def test_of_misses_that_depend_on_each_other_for_too_long_no_memory_is_known() -> None:
    runs = runs_at(
        *((rate, [1000] * 24, [0] * 24) for rate in (95.0, 105.0) * 6),
        *((rate, [1000] * 24, [20] * 24) for rate in (95.0, 105.0) * 6),
    )
    found = estimate(runs, np.array([0.01]), np.random.default_rng(1))
    assert (found.memory_seconds, found.freedom) == (None, 0.0)


@pytest.mark.parametrize(
    ("start", "budget", "tried"),
    [
        (40.0, 600.0, [40, 60, 90, 135, 110.2, 99.6]),
        (300.0, 600.0, [300, 200, 133.3, 88.9, 108.9, 98.4]),
        # Half of the budget is for what comes after.
        (40.0, 21.0, [40, 60, 90, 135]),
        (40.0, 24.0, [40, 60, 90, 135, 110.2]),
    ],
)
def test_a_boundary_is_bracketed_by_steps_and_then_by_halves(
    start, budget, tried
) -> None:
    rates = []

    def measure(rate, seconds, index):
        assert (seconds, index) == (3.0, len(rates))
        rates.append(rate)
        (run,) = runs_at((rate, [9, 9], [0, 18 * (rate > 100)]))
        return run

    settings = SearchSettings(budget_seconds=budget)
    search = Search(measure, ALLOWED, settings, np.random.default_rng(0))
    centre = search._bracket(start)
    assert rates == pytest.approx(tried, abs=0.06)
    low = max(rate for rate in rates if rate <= 100)
    assert centre == pytest.approx(np.sqrt(low * min(r for r in rates if r > 100)))


def test_the_two_levels_on_each_side_take_turns_the_nearest_first() -> None:
    search = Search(
        lambda *_: None, ALLOWED, SearchSettings(), np.random.default_rng(0)
    )
    search.runs = runs_at((101.0, [500, 500], [0, 0]), (103.0, [500, 500], [500, 500]))
    steps = np.log([search._next(100.0) / 100 for _ in range(12)]) / np.log(1.06)
    turns = np.sort(np.round(steps, 6).reshape(6, 2))
    assert turns.tolist() == [[0, 1], [-1, 2]] * 3


def test_an_interval_made_of_one_burst_is_doubted() -> None:
    """One stall at a high rate is all the search saw: by luck, not by the rate."""
    rng = np.random.default_rng(7)
    search = Search(lambda *_: None, ALLOWED, SearchSettings(), rng)
    search.runs, search._run_seconds = bursty_runs(rng, {3, 7}), 6.0
    found = search.found()
    assert found.freedom < LEAST_FREEDOM
    assert "a few bursts" in search.doubts(found)[0]
    search.runs = bursty_runs(rng, {3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 18, 19, 22, 23})
    found = search.found()
    assert found.freedom > LEAST_FREEDOM
    assert not search.doubts(found)


def test_runs_are_lengthened_while_misses_stay_correlated_for_much_of_one() -> None:
    """A slow server, whose queue remembers for seconds."""
    slow = Queue(
        "slow", lambda a, rng: one_server(a, rng.exponential(0.1, a.size)), 1.0, 5.4
    )
    lengths = []
    for queue, budget in ((slow, 600.0), (slow, 100.0), (QUEUES[0], 150.0)):
        search = searching(queue, 2, budget_seconds=budget, run_seconds=6.0)
        search.run(queue.capacity / 2)
        lengths.append(max(run.counts.size for run in search.runs) * 0.25)
        assert search.spent_seconds <= budget + 6.0
    assert lengths[0] > 10
    assert lengths[1:] == [5.5, 5.5]


@pytest.mark.parametrize(
    ("blocks", "confidence", "t", "normal"),
    # Of the tables: 3, 8 and 13 degrees of freedom, never fewer than 2.
    [
        (10, 0.95, 3.1824, 1.95996),
        (21, 0.95, 2.3060, 1.95996),
        (30, 0.90, 1.7709, 1.64485),
        (4, 0.95, 4.3027, 1.95996),
    ],
)
def test_few_blocks_widen_the_interval_as_students_t_does(
    blocks, confidence, t, normal
) -> None:
    assert widening(blocks, confidence) == pytest.approx(t / normal, rel=0.05)


def test_the_interval_is_as_wide_as_the_misses_are_uncertain() -> None:
    rng = np.random.default_rng(12)
    rates, steepness, seconds = np.repeat([95.0, 98.0, 101.0, 104.0], 8), 15, 30.0
    runs = []
    for rate in rates:
        due = np.sort(rng.random(int(rate * seconds))) * seconds
        late = rng.random(due.size) < 0.01 * (rate / 100) ** steepness
        runs.append(run_of(rate, due, late, seconds))
    found = estimate(runs, np.array([0.01]), rng)
    misses = sum(run.misses.sum() for run in runs)
    # Of so many independent misses the share is known to 1 / sqrt(misses).
    ideal = 1.96 / np.sqrt(misses) / steepness
    assert 0.7 * ideal < found.width_ratio < 3 * ideal


def bursts_at(rates, size, *shares):
    """Runs of 24 blocks whose misses come in bursts, `share(rate)` of each term on average."""
    rng, runs = np.random.default_rng(1), []
    for rate in np.repeat(rates, 4):
        counts, burst = rng.poisson(rate / 4, 24), rng.gamma(1 / size, size, 24)
        missed = [rng.binomial(counts, np.minimum(1, s(rate) * burst)) for s in shares]
        runs.append(Observation(rate, counts * 1.0, np.stack(missed, 1) * 1.0, 0.25))
    return runs


BURSTS = bursts_at(
    [900.0, 950.0, 1000.0, 1010.0, 2000.0],
    0.5,
    lambda rate: 0.01 * (rate / 1000) ** 12,
    lambda rate: 0.1 * (rate / 1100) ** 6,
    lambda _: 0.0,
)
LARGE = bursts_at([990.0, 1000.0, 1010.0], 2.0, lambda rate: (rate / 1e3) ** 9 / 90)
STEP = bursts_at([950.0, 1e3, 1200.0], 1e-3, lambda rate: 0.8 if rate > 1e3 else 0.004)


@pytest.mark.parametrize(
    ("runs", "allowed", "figures"),
    [
        (BURSTS, [0.01, 0.1, 0.05], [993.630689, 1021.73882, 1004.17681, 1158.82863, np.inf,
                                     1.77203054, 87.0100748, 43634.7879, 32, 0.25]),
        (LARGE, [0.01], [449.916949, 1032.27589, 992.597934,
                         10.5507494, 22.3221891, 5250.73775, 24, 0.25]),
        (STEP, [0.01], [1000, 1200, 1028.31618, 1.14285714, 41.3400777, None, 16, 0.25]),
    ],
    ids=["bursts", "large bursts", "a step to overload"],
)  # fmt: skip
def test_an_estimate_is_that_whose_coverage_was_measured(runs, allowed, figures):
    """After a change of a figure bench_honesty_capacity.py has to be run again."""
    rng = np.random.default_rng(2)
    found = estimate(runs, np.array(allowed), rng, resamples=200)
    assert found.rate == min(found.by_term)
    ends = found.low, found.high, *found.by_term
    rest = found.dispersion, found.freedom, found.effective_requests
    assert figures == pytest.approx([*ends, *rest, found.blocks, found.memory_seconds])


def test_a_step_above_the_lowest_rate_leaves_the_boundary_anywhere_between():
    share = lambda rate: 0.8 if rate > 1e3 else 0.004  # noqa: E731
    runs = bursts_at([1e3, 1e3, 1200.0], 1e-3, share)
    found = estimate(runs, np.array([0.01]), np.random.default_rng(2), resamples=200)
    assert (found.low, found.high) == (1e3, 1200.0)
