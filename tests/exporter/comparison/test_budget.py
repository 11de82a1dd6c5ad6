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


class Server:
    """Answers pairs; each takes what it takes, and is booked when it is looked at."""

    def __init__(self, budget):
        self.budget = budget
        self.seconds = self.waited = 0.0
        self.production = Production(0, 0.0)
        budget.look(self.production)

    def serve(self, inferences, busy_seconds):
        """Production, and a look at what was served and booked since."""
        before = self.production
        self.production = Production(
            before.inferences + inferences, before.busy_seconds + busy_seconds
        )
        self.budget.look(self.production, self.seconds)

    def ask(self, now, inferences=1, expected=COST, takes=COST, waited=COST):
        """Pairs until the budget says no; how many."""
        asked = 0
        while self.budget.wait_seconds(now + asked / 500, inferences, expected) == 0:
            self.budget.spend(now + asked / 500, inferences)
            self.seconds += takes
            self.waited += max(waited, takes)
            self.budget.waited(self.waited)
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
    server = Server(budget)
    server.serve(1600, 1000.0)
    assert server.ask(1.0, inferences) == 160 // inferences
    assert budget.used.requests_ratio == pytest.approx(0.1)


def test_an_eighth_of_the_busy_time_is_taken_and_no_more():
    budget = Budget(settings(busy_ratio=0.125), 0.0)
    server = Server(budget)
    server.serve(100_000, 1.0)
    assert server.ask(1.0) == 0.125 / COST
    server.serve(0, 0.0)
    assert budget.used.busy_ratio == 0.125


def test_an_idle_champion_is_asked_at_the_idle_rate():
    budget = Budget(settings(), 0.0)
    budget.look(Production(5, 1.0))
    budget.look(Production(5, 1.0))
    assert budget.wait_seconds(1.0, 1, COST) == 0
    budget.spend(1.0, 1)
    assert budget.wait_seconds(1.25, 1, COST) == pytest.approx(0.75)
    never = Budget(settings(idle_pairs_per_second=0), 0.0)
    never.look(Production(5, 1.0))
    never.look(Production(5, 1.0))
    assert never.wait_seconds(1.0, 1, COST) == math.inf


def test_what_was_asked_of_a_champion_that_was_not_idle_after_all_is_paid_for():
    budget = Budget(settings(idle_pairs_per_second=1000), 0.0)
    server = Server(budget)
    server.serve(0, 0.0)
    for step in range(5):
        budget.spend(step / 1000, 1)
    server.serve(100, 1000.0)
    assert server.ask(1.0) == 5


@given(
    rises=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    ratio=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
)
def test_the_share_is_kept_whatever_production_does(rises, ratio):
    budget = Budget(settings(request_ratio=ratio, idle_pairs_per_second=0), 0.0)
    server = Server(budget)
    seen, asked = 0, 0
    for second, rise in enumerate(rises):
        seen += rise
        server.serve(rise, 1e6)
        asked += server.ask(float(second))
        assert asked <= ratio * seen + 1e-9


@given(
    costs=st.lists(st.sampled_from([COST, 8 * COST, 64 * COST]), max_size=20),
    queueing=st.sampled_from([1.0, 3.0]),
)
def test_busy_time_stays_within_its_share_though_a_model_gets_slower(costs, queueing):
    """What is expected is never right again; the pair that tells may go beyond."""
    budget = Budget(settings(request_ratio=1, idle_pairs_per_second=0), 0.0)
    server = Server(budget)
    busy = 0.0
    for second, cost in enumerate(costs):
        busy += 1.0
        server.serve(1000, 1.0)
        server.ask(float(second), takes=cost, waited=queueing * cost)
        assert server.seconds <= 0.1 * busy + cost
    server.serve(0, 0.0)
    assert not costs or budget.used.busy_ratio * busy >= server.seconds - 1e-9


def test_a_share_is_told_once_it_is_booked():
    """Time in the queue is no busy time: it would look as if the share was exceeded."""
    budget = Budget(settings(request_ratio=1, idle_pairs_per_second=0), 0.0)
    server = Server(budget)
    told = []
    for second in range(10):
        server.serve(1000, 1.0)
        server.ask(float(second), waited=100 * COST)
        told.append(budget.used.busy_ratio)
    assert told[:2] == [None, None]
    assert 0 < told[-1] <= 0.1


def test_time_in_the_queue_is_given_back_when_it_is_booked():
    server = Server(Budget(settings(request_ratio=1), 0.0))
    asked = 0
    for second in range(60):
        server.serve(1000, 1.0)
        asked += server.ask(float(second), waited=4 * COST)
    # What is not booked yet, three looks at most, counts three seconds' share too much each.
    assert 0.1 * (60 - 3 * 3 - 2) / COST <= asked <= 0.1 * 60 / COST


def test_what_is_asked_while_production_rests_is_no_share_of_it():
    budget = Budget(settings(idle_pairs_per_second=1000), 0.0)
    server = Server(budget)
    server.serve(1000, 1.0)
    asked = server.ask(1.0)
    for _ in range(3):
        server.serve(0, 0.0)
        for _ in range(100):
            server.seconds += COST
        budget.waited(server.seconds)
    server.serve(0, 0.0)
    assert budget.used.busy_ratio == pytest.approx(asked * COST)


def test_no_stock_of_unused_time_is_burnt_when_a_model_gets_slower():
    server = Server(Budget(settings(request_ratio=0.01, busy_ratio=0.5), 0.0))
    for second in range(100):
        server.serve(1000, 1.0)
        server.ask(float(second))
    before = server.seconds
    server.serve(100_000, 1.0)
    server.ask(101.0, takes=0.2)
    # Five seconds of asking at what a pair took, and the pair that told.
    assert server.seconds - before <= 5 * 1000 * COST + 0.2
