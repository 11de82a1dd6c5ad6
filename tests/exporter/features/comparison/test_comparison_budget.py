"""What a shadow comparison may ask: never more than its share of production."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.features.comparison.comparison_budget import Budget, Production, Wait
from exporter.features.comparison.comparison_settings import BudgetSettings

COST = 1 / 512
LOOKS_APART = 5.0


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
        self.seconds = self.waited = self.at = 0.0
        self.production = Production(0, 0.0)
        budget.update(self.at, self.production)

    def serve(self, inferences, busy_seconds):
        """Production, and a look at what was served and booked since."""
        before = self.production
        self.production = Production(
            before.inferences + inferences, before.busy_seconds + busy_seconds
        )
        self.at += LOOKS_APART
        self.budget.update(self.at, self.production, self.seconds)

    def ask(self, inferences=1, expected=COST, takes=COST, waited=COST):
        """Pairs until the next look; how many."""
        return len(self.times_asked(inferences, expected, takes, waited))

    def times_asked(self, inferences=1, expected=COST, takes=COST, waited=COST):
        """When pairs were sent until the next look."""
        now, sent, end = self.at, [], self.at + LOOKS_APART
        while now < end:
            wait = self.budget.next_pair(now, inferences, expected).seconds
            if wait:
                now += wait + 1e-6
                if self.budget.next_pair(now, inferences, expected).seconds:
                    # Only another look can earn it.
                    break
                continue
            self.budget.spend(now, inferences)
            self.seconds += takes
            self.waited += max(waited, takes)
            self.budget.waited(self.waited)
            sent.append(now)
        return sent


def test_nothing_is_asked_before_production_was_seen():
    budget = Budget(settings(), 0.0)
    unknown = Wait(math.inf, "statistics")
    assert budget.next_pair(0.0, 1, COST) == unknown
    budget.update(0.0, None)
    assert budget.next_pair(0.0, 1, COST) == unknown
    assert "requests" not in budget.used


def test_one_look_does_not_say_that_production_is_idle():
    budget = Budget(settings(), 0.0)
    budget.update(100.0, Production(5, 1.0))
    assert budget.next_pair(100.0, 1, COST) == Wait(math.inf, "statistics")
    budget.update(101.9, Production(5, 1.0))
    assert budget.next_pair(101.9, 1, COST).limit == "statistics"
    budget.update(102.0, Production(5, 1.0))
    assert budget.next_pair(102.0, 1, COST) == Wait(0.0, "idle")


def test_gentle_production_between_frequent_looks_is_not_idle():
    """One request a second, looked at twice a second: a twentieth of it is asked."""
    budget = Budget(settings(idle_pairs_per_second=100, request_ratio=0.05), 0.0)
    asked = 0
    for step in range(400):
        at = step / 2
        budget.update(at, Production(step // 2, 1e3 * step))
        while not budget.next_pair(at, 1, COST).seconds:
            budget.spend(at, 1)
            asked += 1
        budget.waited(asked * COST)
    assert 8 <= asked <= 0.05 * 200


def test_what_holds_the_next_pair_back_and_for_how_long():
    budget = Budget(settings(request_ratio=0.05, busy_ratio=0.5), 0.0)
    for second in range(11):
        budget.update(float(second), Production(6 * second, 0.1 * second))
    for pair in range(3):  # 60 requests earn three
        assert budget.next_pair(20.0 + pair, 1, COST).seconds == 0
        budget.spend(20.0 + pair, 1)
    wait = budget.next_pair(30.0, 1, COST)
    # The fourth needs twenty more requests at six a second.
    assert (wait.limit, wait.seconds) == ("requests", pytest.approx(20 / 6))
    # At once a pair that takes long: half of a tenth of a second is earned a second.
    budget.update(11.0, Production(1000, 1.1))
    wait = budget.next_pair(30.0, 1, 1.0)
    assert (wait.limit, wait.seconds) == ("busy", pytest.approx((1.0 - 0.55) / 0.05))


@pytest.mark.parametrize("limit", ["requests", "busy"])
def test_an_allowance_that_is_spread_after_production_paused_is_the_limit(limit):
    """Production's rate is 0 and its statistics cannot be read: the allowance remains."""
    only = {"requests": "busy_ratio", "busy": "request_ratio"}[limit]
    budget = Budget(settings(**{only: None}), 0.0)
    for second, inferences in ((0.0, 0), (60.0, 1000), (120.0, 1000)):
        budget.update(second, Production(inferences, inferences / 1e3))
    budget.update(121.0, None)
    budget.spend(121.0, 1)
    wait = budget.next_pair(121.0, 1, COST)
    assert wait == Wait(pytest.approx(1.0, rel=0.9), limit)
    # What is beyond it is held back until the rate is known.
    assert budget.next_pair(121.0, 1000, 1e3) == Wait(math.inf, "statistics")


def test_pairs_are_spread_over_the_time_between_two_reads():
    """Fifty that are earned at once: a burst would compare one moment of both models."""
    server = Server(Budget(settings(max_pairs_per_second=100), 0.0))
    for _ in range(3):
        server.serve(500, 1000.0)
        gaps = [b - a for a, b in pairwise(server.times_asked())]
        assert len(gaps) == pytest.approx(49, abs=1)
        assert gaps == pytest.approx([LOOKS_APART / 50] * len(gaps), rel=0.05)


def test_without_shares_only_the_rate_limits():
    free = settings(request_ratio=None, busy_ratio=None, idle_pairs_per_second=0)
    budget = Budget(free, 0.0)
    for second in range(10):
        assert budget.next_pair(float(second), 1, 1e9) == Wait(0.0, "rate")
        budget.spend(float(second), 1)
        assert budget.next_pair(float(second), 1, 1e9) == Wait(
            pytest.approx(0.001), "rate"
        )
        budget.update(float(second), Production(0, 0.0))


@pytest.mark.parametrize("only", ["request_ratio", "busy_ratio"])
def test_one_share_limits_without_the_other(only):
    other = {"request_ratio", "busy_ratio"} - {only}
    budget = Budget(settings(**dict.fromkeys(other)), 0.0)
    server = Server(budget)
    server.serve(100, 1.0)
    earned = 10 if only == "request_ratio" else 0.1 / COST
    assert server.ask() == pytest.approx(earned, abs=1)


@pytest.mark.parametrize("inferences", [1, 8])
def test_a_tenth_of_the_inferences_is_asked_and_no_more(inferences):
    budget = Budget(settings(), 0.0)
    server = Server(budget)
    server.serve(1600, 1000.0)
    assert server.ask(inferences) == 160 // inferences
    assert budget.used["requests"] == pytest.approx(0.1)


def test_an_eighth_of_the_busy_time_is_taken_and_no_more():
    budget = Budget(settings(busy_ratio=0.125), 0.0)
    server = Server(budget)
    server.serve(100_000, 1.0)
    assert server.ask() == 0.125 / COST
    server.serve(0, 0.0)
    assert budget.used["busy"] == 0.125


def idle(**changes):
    budget = Budget(settings(**changes), 0.0)
    budget.update(0.0, Production(5, 1.0))
    budget.update(LOOKS_APART, Production(5, 1.0))
    return budget


def test_an_idle_champion_is_asked_at_the_idle_rate():
    budget = idle()
    assert budget.next_pair(1.0, 1, COST).seconds == 0
    budget.spend(1.0, 1)
    assert budget.next_pair(1.25, 1, COST) == Wait(pytest.approx(0.75), "idle")
    never = idle(idle_pairs_per_second=0)
    assert never.next_pair(1.0, 1, COST) == Wait(math.inf, "idle")


def test_what_was_asked_of_a_champion_that_was_not_idle_after_all_is_paid_for():
    budget = Budget(settings(idle_pairs_per_second=1000), 0.0)
    server = Server(budget)
    server.serve(0, 0.0)
    for step in range(5):
        budget.spend(step / 1000, 1)
    server.serve(100, 1000.0)
    assert server.ask() == 5


@given(
    rises=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    ratio=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
)
def test_the_share_is_kept_whatever_production_does(rises, ratio):
    budget = Budget(settings(request_ratio=ratio, idle_pairs_per_second=0), 0.0)
    server = Server(budget)
    seen, asked = 0, 0
    for rise in rises:
        seen += rise
        server.serve(rise, 1e6)
        asked += server.ask()
        assert asked <= ratio * seen + 1e-9


@example(costs=[8 * COST, *[64 * COST] * 4, COST], queueing=1.0)
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
        server.ask(takes=cost, waited=queueing * cost)
        # One dearer than ever before told what they cost by now; cheap ones do not undo it.
        assert server.seconds <= 0.1 * busy + max(costs[: second + 1])
    server.serve(0, 0.0)
    assert not costs or budget.used["busy"] * busy >= server.seconds - 1e-9


def test_a_share_is_told_once_it_is_booked():
    """Time in the queue is no busy time: it would look as if the share was exceeded."""
    budget = Budget(settings(request_ratio=1, idle_pairs_per_second=0), 0.0)
    server = Server(budget)
    told = []
    for _ in range(10):
        server.serve(1000, 1.0)
        server.ask(waited=100 * COST)
        told.append(budget.used.get("busy"))
    assert told[:2] == [None, None]
    assert 0 < told[-1] <= 0.1


def test_time_in_the_queue_is_given_back_when_it_is_booked():
    server = Server(Budget(settings(request_ratio=1), 0.0))
    asked = 0
    for _ in range(60):
        server.serve(1000, 1.0)
        asked += server.ask(waited=4 * COST)
    # What is not booked yet, three looks at most, counts three seconds' share too much each.
    assert 0.1 * (60 - 3 * 3 - 2) / COST <= asked <= 0.1 * 60 / COST


def test_what_is_asked_while_production_rests_is_no_share_of_it():
    budget = Budget(settings(idle_pairs_per_second=1000), 0.0)
    server = Server(budget)
    server.serve(1000, 1.0)
    asked = server.ask()
    for _ in range(3):
        server.serve(0, 0.0)
        for _ in range(100):
            server.seconds += COST
        budget.waited(server.seconds)
    server.serve(0, 0.0)
    assert budget.used["busy"] == pytest.approx(asked * COST)


def test_no_stock_of_unused_time_is_burnt_when_a_model_gets_slower():
    server = Server(Budget(settings(request_ratio=0.01, busy_ratio=0.5), 0.0))
    for _ in range(100):
        server.serve(1000, 1.0)
        server.ask()
    before = server.seconds
    server.serve(100_000, 1.0)
    server.ask(takes=0.2)
    # Five seconds of asking at what a pair took, and the pair that told.
    assert server.seconds - before <= 5 * 1000 * COST + 0.2
