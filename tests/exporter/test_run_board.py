"""Runs that tell of themselves: shown while they go on, gone when they say no more."""

from __future__ import annotations

import json

import pytest

from exporter import catalogue
from exporter.collectors.runs import RunsCollector
from exporter.run_board import MAX_RUNS, CapacityNotice, RunBoard, RunNotice
from exporter.samples import Sample
from exporter.tap_route import TapRequest


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def totals() -> dict[str, float]:
    return {}


@pytest.fixture
def collector(clock, totals) -> RunsCollector:
    def exposed():
        for model, total in totals.items():
            labels = (model, "1", "success")
            yield Sample(catalogue.REQUESTS, total, labels)

    return RunsCollector(RunBoard(clock), exposed, clock, 60.0)


def post(collector, path, **notice):
    route = next(r for r in collector.routes() if r.path == path)
    body = json.dumps(notice).encode()
    return route.answer(TapRequest(body, body, {}))


RUN = {"run": "a", "kind": "load", "profile": "poisson", "phase": "steady"}
CAPACITY = {
    "model": "m",
    "slo": "p99<20ms",
    "requests_per_second": 200.0,
    "low": 190.0,
    "high": 210.0,
}


def values(collector, spec) -> dict[tuple[str, ...], float]:
    return {s.labels: s.value for s in collector.collect() if s.spec is spec}


def test_a_run_is_shown_with_its_latest_phase_until_it_ends(collector) -> None:
    assert post(collector, "/v1/runs", **RUN).outcome == "accepted"
    post(collector, "/v1/runs", **RUN | {"phase": "spike"})
    shown = values(collector, catalogue.RUN_INFO)
    assert shown == {("a", "load", "poisson", "spike"): 1}
    post(collector, "/v1/runs", **RUN | {"ended": True})
    assert not values(collector, catalogue.RUN_INFO)


def test_a_run_that_says_no_more_is_forgotten(collector, clock) -> None:
    post(collector, "/v1/runs", **RUN, ttl_seconds=10)
    clock.now += 9.9
    assert values(collector, catalogue.RUN_INFO)
    clock.now += 0.2
    assert not values(collector, catalogue.RUN_INFO)


def test_more_runs_than_are_kept_are_refused_and_those_known_go_on(collector) -> None:
    for number in range(MAX_RUNS):
        post(collector, "/v1/runs", **RUN | {"run": f"r{number}"})
    assert post(collector, "/v1/runs", **RUN).outcome == "overloaded"
    known = post(collector, "/v1/runs", **RUN | {"run": "r3", "phase": "x"})
    assert known.outcome == "accepted"
    assert len(values(collector, catalogue.RUN_INFO)) == MAX_RUNS


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "holiday"}, "kind"),
        ({"run": ""}, "run"),
        ({"run": "x" * 201}, "run"),
        ({"ttl_seconds": 1e9}, "ttl_seconds"),
        ({"more": 1}, "more"),
    ],
)
def test_a_notice_that_is_none_is_refused_in_words(collector, change, told) -> None:
    answer = post(collector, "/v1/runs", **RUN | change)
    assert answer.outcome == "malformed"
    assert told in answer.body.decode()


def test_what_is_no_json_is_refused(collector) -> None:
    for route in collector.routes():
        assert route.answer(TapRequest(b"{", b"{", {})).outcome == "malformed"


def test_a_capacity_is_shown_with_its_interval_and_replaced_by_the_next(
    collector,
) -> None:
    post(collector, "/v1/capacity", **CAPACITY)
    post(collector, "/v1/capacity", **CAPACITY | {"requests_per_second": 201.0})
    assert values(collector, catalogue.CAPACITY) == {
        ("m", "p99<20ms", "estimate"): 201.0,
        ("m", "p99<20ms", "low"): 190.0,
        ("m", "p99<20ms", "high"): 210.0,
    }


def test_headroom_is_what_production_leaves_and_unknown_before_that_is_known(
    collector, clock, totals
) -> None:
    post(collector, "/v1/capacity", **CAPACITY)
    totals["m"] = 1000.0
    assert not values(collector, catalogue.CAPACITY_HEADROOM)
    clock.now += 40.0
    totals["m"] += 40 * 50.0
    shown = values(collector, catalogue.CAPACITY_HEADROOM)
    assert shown == {("m", "p99<20ms"): pytest.approx(0.75)}
    clock.now += 40.0
    totals["m"] = 10.0  # started anew: its rate is unknown
    assert not values(collector, catalogue.CAPACITY_HEADROOM)


def test_looks_further_apart_than_the_window_make_a_rate_all_the_same(
    collector, clock, totals
) -> None:
    post(collector, "/v1/capacity", **CAPACITY)
    totals["m"] = 0.0
    assert not values(collector, catalogue.CAPACITY_HEADROOM)
    for rate in (50.0, 150.0):
        clock.now += 90.0
        totals["m"] += 90.0 * rate
        shown = values(collector, catalogue.CAPACITY_HEADROOM)
        assert shown == {("m", "p99<20ms"): pytest.approx(1 - rate / 200.0)}


def test_what_was_asked_before_a_capacity_was_forgotten_is_no_present_rate(
    collector, clock, totals
) -> None:
    post(collector, "/v1/capacity", **CAPACITY, ttl_seconds=10)
    totals["m"] = 0.0
    values(collector, catalogue.CAPACITY)
    clock.now += 5000.0
    values(collector, catalogue.CAPACITY)
    post(collector, "/v1/capacity", **CAPACITY)
    totals["m"] = 9000.0
    assert not values(collector, catalogue.CAPACITY_HEADROOM)


def test_a_notice_that_comes_back_from_the_board_is_the_one_that_went_in(clock) -> None:
    board = RunBoard(clock)
    run, found = RunNotice(**RUN), CapacityNotice(**CAPACITY)
    board.note_run(run)
    board.note_capacity(found)
    assert (board.runs(), board.capacities()) == ([run], [found])
