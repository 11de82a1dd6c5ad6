"""Counts of what clients saw are kept for models that the server has, and no others."""

from __future__ import annotations

from accesses import access_to
from clocks import Clock

from exporter.access import client_outcomes
from exporter.access.client_outcomes import ClientOutcomes
from exporter.access.inventory import Inventory
from exporter.settings import ModelFilter


def counting(*keys, **given):
    clock = Clock()
    access = access_to(None, clock=clock, **given)
    access.board.publish(Inventory(models=dict.fromkeys(keys)))
    return ClientOutcomes("access_log", access), access, clock


def values(outcomes):
    return {s.labels: s.value for s in outcomes.samples() if s.value}


def test_models_that_the_server_has_begin_at_zero():
    outcomes, _, _ = counting(("m", "1"))
    assert [(s.labels, s.value) for s in outcomes.samples()] == [
        (("m", "1", outcome, "access_log"), 0)
        for outcome in ("success", "failure", "abandoned")
    ]


def test_a_request_without_a_version_is_one_of_the_latest():
    outcomes, _, _ = counting(("m", "9"), ("m", "10"))
    assert outcomes.add("m", "", "failure", 3)
    assert outcomes.add("m", "9", "success")
    assert values(outcomes) == {
        ("m", "10", "failure", "access_log"): 3,
        ("m", "9", "success", "access_log"): 1,
    }


def test_strangers_are_neither_counted_nor_kept():
    outcomes, _, _ = counting(("m", "1"), models=ModelFilter(exclude=("n",)))
    for number in range(1000):
        assert not outcomes.add(f"stranger-{number}", "", "failure")
        assert not outcomes.add("m", f"{number + 2}", "failure")
    assert values(outcomes) == {}
    assert len(list(outcomes.samples())) == 3


def test_a_model_that_was_unloaded_fails_for_its_clients_until_it_is_forgotten():
    outcomes, access, clock = counting(("m", "1"))
    assert outcomes.add("m", "", "success")
    access.board.publish(Inventory())
    clock.now += client_outcomes.FORGET_SECONDS
    assert outcomes.add("m", "", "failure")
    assert ("m", "1", "failure", "access_log") in values(outcomes)
    clock.now += 1
    assert not outcomes.add("m", "", "failure")
    assert list(outcomes.samples()) == []


def test_models_that_nobody_watches_are_left_out():
    outcomes, _, _ = counting(
        ("m", "1"), ("n", "1"), models=ModelFilter(exclude=("n",))
    )
    assert not outcomes.add("n", "1", "failure")
    assert outcomes.add("m", "1", "failure")
