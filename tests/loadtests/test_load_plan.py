"""Schedules are checked before a run, and shared out so that nothing is lost or doubled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests import plan
from loadtests.errors import PlanError


@pytest.mark.parametrize(
    ("arrivals", "told"),
    [
        ([], "found no arrivals"),
        ([[0.0, 1.0]], "found no arrivals"),
        ([0.0, 2.0, 1.0], "go backwards after number [1]"),
        ([-1.0, 0.0], "from -1 s to 0 s"),
        ([0.0, np.nan], "want finite times"),
        ([0.0, 1e9], "to 1e+09 s"),
        (np.zeros(plan.MAX_REQUESTS + 1), "at most 5000000"),
    ],
)
def test_what_is_no_schedule_is_refused_with_what_was_found(arrivals, told) -> None:
    with pytest.raises(PlanError) as refused:
        plan.checked(arrivals)
    assert told in str(refused.value)


@given(st.integers(1, 7), st.integers(1, 500), st.integers(0, 2**32))
def test_the_shares_of_all_workers_are_the_schedule(workers, count, seed) -> None:
    arrivals = np.arange(count) / 10
    shares = [plan.share(arrivals, w, workers, seed=seed) for w in range(workers)]
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(count))


def test_a_share_of_a_poisson_process_is_one_of_a_part_of_the_rate() -> None:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1e-3, size=200_000))
    for worker in range(4):
        mine = arrivals[plan.share(arrivals, worker, 4, seed=11)]
        gaps = np.diff(mine)
        assert gaps.mean() == pytest.approx(4e-3, rel=0.02)
        assert 0.98 <= gaps.std() / gaps.mean() <= 1.02


def test_a_worker_that_there_is_not_has_no_share() -> None:
    with pytest.raises(PlanError, match="worker 2 of 2"):
        plan.share(np.arange(3.0), 2, 2, seed=1)


def test_the_mix_is_drawn_by_weight_and_the_same_for_the_same_seed() -> None:
    drawn = plan.entries(100_000, [3, 1], seed=3)
    assert np.mean(drawn == 0) == pytest.approx(0.75, abs=0.01)
    assert np.array_equal(drawn, plan.entries(100_000, [3, 1], seed=3))
    assert not np.array_equal(drawn, plan.entries(100_000, [3, 1], seed=4))
