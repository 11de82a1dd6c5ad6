"""Whole capacity searches of queues whose capacity is known, and how they end."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_queues import (
    ALLOWED,
    QUEUES,
    run_of,
    searching,
)

from loadtests.capacity.campaign import CampaignSettings, left_to_search
from loadtests.capacity.search import Search, SearchSettings


@pytest.mark.parametrize("queue", QUEUES, ids=lambda q: q.name)
def test_the_interval_covers_the_known_capacity(queue) -> None:
    """Twelve searches each; `make bench ONLY=honesty_capacity` takes more."""
    covered = 0
    for seed in range(12):
        search = searching(queue, seed)
        assert search.run(queue.capacity / 2) in {"precise", "budget"}
        found = search.found()
        covered += found.low <= queue.capacity <= found.high
    # With the 95 % that it promises, fewer than 9 of 12 happen once in 5,000 times.
    assert covered >= 9


def test_a_search_ends_early_when_it_is_precise_enough() -> None:
    search = searching(QUEUES[3], 3, budget_seconds=600.0, precision_ratio=0.06)
    assert search.run(300.0) == "precise"
    assert search.spent_seconds < 600


@pytest.mark.parametrize(
    ("missed", "ending"),
    # One of a hundred is what is allowed: chance may have spared a few.
    [(0, "every_rate_holds"), (1, "budget"), (100, "no_rate_holds")],
)
def test_a_boundary_that_is_not_there_is_said_and_ends(missed, ending) -> None:
    def measure(rate, seconds, index):
        due = np.linspace(0, seconds, 100, endpoint=False)
        return run_of(rate, due, np.arange(100) < missed, seconds)

    settings = SearchSettings(most_rate=500.0, least_rate=2.0)
    search = Search(measure, ALLOWED, settings, np.random.default_rng(0))
    assert search.run(100.0) == ending
    if missed != 1:
        assert search.found().rate in {0.0, np.inf}


def test_a_capacity_below_one_request_a_second_is_found() -> None:
    def measure(rate, seconds, index):
        due = np.arange(0.0, seconds, 1.0 / rate)
        return run_of(rate, due, np.full(due.size, rate > 0.6), seconds)

    search = Search(measure, ALLOWED, SearchSettings(), np.random.default_rng(0))
    assert search.run(0.48) == "budget"
    assert search.bracketed


@pytest.mark.parametrize(("allowed", "least"), [(0.1, 29), (0.01, 299), (0.001, 2995)])
def test_every_rate_holds_only_where_enough_requests_were_sent(allowed, least) -> None:
    """Without a miss, the rule of three: 95 % certainty takes 3 / allowed requests."""

    def measure(rate, seconds, index):
        due = np.arange(0.0, seconds, 1.0 / rate)
        return run_of(rate, due, np.zeros(due.size, bool), seconds)

    settings = SearchSettings(most_rate=10.0, budget_seconds=1000.0)
    rng = np.random.default_rng(0)
    search = Search(measure, np.array([allowed]), settings, rng)
    assert search.run(5.0) == "every_rate_holds"
    sent = sum(run.requests for run in search.runs if run.rate == 10.0)
    assert least <= sent <= least + 10 * settings.bracket_seconds


@pytest.mark.parametrize(
    ("requests", "late", "allowed", "ending"),
    [
        (2, [1, 1], 0.01, "budget"),
        (10, [1, 1], 0.01, "budget"),
        (10, [2, 2], 0.1, "budget"),
        (10, [9, 9], 0.1, "no_rate_holds"),
        (10, [1, 1], 0.001, "no_rate_holds"),
        # One pause is no evidence.
        (10, [3], 0.001, "budget"),
    ],
)
def test_no_rate_holds_only_where_chance_does_not_explain_the_misses(
    requests, late, allowed, ending
) -> None:
    """Of the first runs at the lowest rate; the next ones miss nothing."""
    least, first = 100.0, iter(late)

    def measure(rate, seconds, index):
        due = np.linspace(0, seconds, requests, endpoint=False)
        missed = requests if rate > least else next(first, 0)
        return run_of(rate, due, np.arange(requests) < missed, seconds)

    settings, rng = SearchSettings(least_rate=least), np.random.default_rng(0)
    search = Search(measure, np.array([allowed]), settings, rng)
    assert search.run(600.0) == ending


def test_a_budget_that_ends_above_the_boundary_does_not_say_that_no_rate_holds() -> (
    None
):
    def measure(rate, seconds, index):
        due = np.linspace(0, seconds, 50, endpoint=False)
        return run_of(rate, due, np.ones(50, np.bool_), seconds)

    settings = SearchSettings(budget_seconds=6.0)
    search = Search(measure, ALLOWED, settings, np.random.default_rng(0))
    assert search.run(100.0) == "budget"
    assert search.runs
    assert not search.bracketed


def test_a_search_whose_every_run_is_rejected_ends_with_its_budget() -> None:
    settings = SearchSettings(budget_seconds=20.0)
    search = Search(lambda *_: None, ALLOWED, settings, np.random.default_rng(0))
    assert search.run(100.0) == "budget"
    assert not search.bracketed
    assert not search.runs
    assert search.rejected > 0
    assert search.spent_seconds < 30


@pytest.mark.parametrize("queue", QUEUES, ids=lambda q: q.name)
@pytest.mark.parametrize("allowed", [0.001, 1e-6])
def test_a_term_that_nobody_misses_changes_nothing_however_short_the_runs(
    queue, allowed
) -> None:
    """0.25 misses that stand for none are more than 0.1 % of the requests of a short run."""
    found = []
    for terms in ([0.01], [0.01, allowed]):
        search = searching(queue, 4, allowed=np.array(terms), bracket_seconds=1.5)
        search.run(queue.capacity / 2)
        found.append(search.found())
    alone, both = found
    assert alone.rate == both.rate
    assert (alone.low, alone.high) == (both.low, both.high)
    assert both.by_term[1] == np.inf


def test_a_start_that_takes_long_costs_budget_and_not_more_time() -> None:
    settings = CampaignSettings()
    whole = settings.search.budget_seconds
    usual = settings.reference_seconds + 15.0
    assert left_to_search(settings, usual).budget_seconds == whole
    late = left_to_search(settings, usual + 30.0).budget_seconds
    assert late == pytest.approx(whole - 30.0)
    assert left_to_search(settings, 1e6).budget_seconds == whole / 2
