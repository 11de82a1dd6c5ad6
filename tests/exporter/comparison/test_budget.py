"""What a shadow comparison may ask: never more than its share of production."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.comparison.budget import Budget, Production
from exporter.comparison.settings import BudgetSettings

COST = 1 / 512


def settings(**changes):
    return BudgetSettings.model_validate(
        {
            "request_ratio": 0.1,
            "busy_ratio": 0.1,
            "idle_pairs_per_second": 1,
            "max_pairs_per_second": 1000,
            **changes,
        }
    )


def asked_until_refused(budget, now, inferences=1):
    asked = 0
    while budget.wait_seconds(now + asked / 500, inferences, COST) == 0:
        budget.spend(now + asked / 500, inferences, COST)
        asked += 1
        assert asked < 100_000
    return asked


def test_nothing_is_asked_before_production_was_seen():
    budget = Budget(settings(), 0.0)
    assert budget.wait_seconds(0.0, 1, COST) == math.inf
    budget.look(None)
    assert budget.wait_seconds(0.0, 1, COST) == math.inf
    assert budget.used.requests_ratio is None


@pytest.mark.parametrize("inferences", [1, 8])
def test_a_tenth_of_the_inferences_is_asked_and_no_more(inferences):
    budget = Budget(settings(), 0.0)
    budget.look(Production(0, 0.0))
    budget.look(Production(1600, 1000.0))
    assert asked_until_refused(budget, 1.0, inferences) == 160 // inferences
    assert budget.used.requests_ratio == pytest.approx(0.1)


def test_an_eighth_of_the_busy_time_is_taken_and_no_more():
    budget = Budget(settings(busy_ratio=0.125), 0.0)
    budget.look(Production(0, 0.0))
    budget.look(Production(100_000, 1.0))
    assert asked_until_refused(budget, 1.0) == 0.125 / COST
    assert budget.used.busy_ratio == 0.125


def test_an_idle_champion_is_asked_at_the_idle_rate():
    budget = Budget(settings(), 0.0)
    budget.look(Production(5, 1.0))
    budget.look(Production(5, 1.0))
    assert budget.wait_seconds(1.0, 1, COST) == 0
    budget.spend(1.0, 1, COST)
    assert budget.wait_seconds(1.25, 1, COST) == pytest.approx(0.75)
    never = Budget(settings(idle_pairs_per_second=0), 0.0)
    never.look(Production(5, 1.0))
    never.look(Production(5, 1.0))
    assert never.wait_seconds(1.0, 1, COST) == math.inf


def test_what_was_asked_of_a_champion_that_was_not_idle_after_all_is_paid_for():
    budget = Budget(settings(idle_pairs_per_second=1000), 0.0)
    budget.look(Production(0, 0.0))
    budget.look(Production(0, 0.0))
    for step in range(5):
        budget.spend(step / 1000, 1, COST)
    budget.look(Production(100, 1000.0))
    assert asked_until_refused(budget, 1.0) == 5


@given(
    rises=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    ratio=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
)
def test_the_share_is_kept_whatever_production_does(rises, ratio):
    budget = Budget(settings(request_ratio=ratio, idle_pairs_per_second=0), 0.0)
    seen, asked = 0, 0
    budget.look(Production(0, 0.0))
    for second, rise in enumerate(rises):
        seen += rise
        budget.look(Production(seen, 1e6 * (second + 1)))
        asked += asked_until_refused(budget, float(second))
        assert asked <= ratio * seen + 1e-9
