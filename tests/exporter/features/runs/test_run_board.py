"""Runs that tell of themselves: shown while they go on, gone when they say no more."""

from __future__ import annotations

import json

import pytest
from accesses import access_to
from clocks import Clock

from exporter import catalogue
from exporter.features.runs.run_board import (
    MAX_CAPACITIES,
    MAX_RUNS,
)
from exporter.features.runs.runs_collector import RunsCollector, RunsSettings
from exporter.samples import ReadTime, Sample
from exporter.taps.tap_route import TapRequest


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def totals() -> dict[str, float]:
    return {}


@pytest.fixture
def collector(clock, totals) -> RunsCollector:
    def exposed():
        for model, total in totals.items():
            labels = (model, "1", "success")
            yield Sample(catalogue.REQUESTS, total, labels)

    return RunsSettings().build(access_to(None, exposed=exposed, clock=clock))


def post(collector, path, sender="", **notice):
    route = next(r for r in collector.routes() if r.path == path)
    body = json.dumps(notice).encode()
    return route.answer(TapRequest(body, {}, path, sender))


RUN = {"run": "a", "kind": "load", "profile": "poisson", "phase": "steady"}
CAPACITY = {
    "model": "m",
    "slo": "p99<20ms",
    "requests_per_second": 200.0,
    "low": 190.0,
    "effective_requests": 1_200.0,
    "high": 210.0,
}


def with_capacity(clock) -> tuple[RunsCollector, list[Sample]]:
    """A collector that knows a capacity, and the list of samples that it reads."""
    exposed: list[Sample] = []
    collector = RunsSettings().build(
        access_to(None, exposed=lambda: exposed, clock=clock)
    )
    post(collector, "/v1/capacity", **CAPACITY)
    return collector, exposed


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


def shown_runs(collector) -> set[str]:
    return {labels[0] for labels in values(collector, catalogue.RUN_INFO)}


def test_of_more_runs_than_are_kept_the_one_heard_of_longest_ago_goes(
    collector,
) -> None:
    for number in range(MAX_RUNS):
        post(collector, "/v1/runs", **RUN | {"run": f"r{number}"})
    post(collector, "/v1/runs", **RUN | {"run": "r0", "phase": "x"})
    assert post(collector, "/v1/runs", **RUN).outcome == "accepted"
    assert len(shown_runs(collector)) == MAX_RUNS
    assert {"a", "r0"} <= shown_runs(collector)
    assert "r1" not in shown_runs(collector)


def test_a_sender_of_many_runs_takes_no_place_of_others(collector) -> None:
    post(collector, "/v1/runs", "10.0.0.1", **RUN)
    for number in range(3 * MAX_RUNS):
        flood = RUN | {"run": f"r{number}", "ttl_seconds": 3600}
        post(collector, "/v1/runs", "10.6.6.6", **flood)
    post(collector, "/v1/runs", "10.0.0.2", **RUN | {"run": "b"})
    assert {"a", "b"} <= shown_runs(collector)
    assert len(shown_runs(collector)) == MAX_RUNS


def test_a_sender_of_many_capacities_takes_no_place_of_others(collector) -> None:
    post(collector, "/v1/capacity", "10.0.0.1", **CAPACITY)
    for number in range(2 * MAX_CAPACITIES):
        flood = CAPACITY | {"slo": f"s{number}", "ttl_seconds": 365 * 86_400}
        post(collector, "/v1/capacity", "10.6.6.6", **flood)
    post(collector, "/v1/capacity", "10.0.0.2", **CAPACITY | {"model": "other"})
    found = values(collector, catalogue.CAPACITY)
    assert {("m", "p99<20ms", "low"), ("other", "p99<20ms", "low")} <= found.keys()
    assert len(found) == 3 * MAX_CAPACITIES


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
        assert route.answer(TapRequest(b"{", {})).outcome == "malformed"


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
    worth = values(collector, catalogue.CAPACITY_EFFECTIVE)
    assert worth == {("m", "p99<20ms"): 1_200.0}


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


def test_a_version_that_is_absent_for_a_while_does_not_change_the_headroom(clock):
    collector, exposed = with_capacity(clock)
    shown = []
    for step in range(60):
        clock.now += 5.0
        exposed[:] = [
            Sample(catalogue.REQUESTS, total + 250 * step, ("m", version, "success"))
            for version, total in (("1", 2_000_000), ("2", 5_000))
            if version == "2" or step not in {20, 21, 22}
        ]
        shown += values(collector, catalogue.CAPACITY_HEADROOM).values()
    # Meanwhile, only the other version is there to be counted.
    assert sorted(shown)[-3:] == [pytest.approx(0.75)] * 3
    assert set(sorted(shown)[:-3]) == {0.5}


def test_a_rate_is_over_the_time_between_two_reads_of_the_statistics(clock):
    collector, exposed = with_capacity(clock)
    shown = []
    for now in range(0, 600, 5):
        at = now // 25 * 25
        exposed[:] = [
            Sample(catalogue.REQUESTS, 100 * at, ("m", "1", "success")),
            ReadTime(catalogue.COLLECTOR_TIMESTAMP, 1e9, ("statistics",), at=at),
        ]
        clock.now += 5.0
        shown += values(collector, catalogue.CAPACITY_HEADROOM).values()
    assert set(shown) == {0.5}


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


KEY = ("m", "p99<20ms")
INVALID = {
    "model": "m",
    "slo": "p99<20ms",
    "verdict": "invalid",
    "reason": "others used 0.9 of a processor",
}


def published(collector) -> dict[tuple[str, ...], float]:
    return values(collector, catalogue.CAPACITY) | values(
        collector, catalogue.CAPACITY_HEADROOM
    )


def with_a_rate(collector, clock, totals) -> None:
    """So that there would be headroom if there were a capacity."""
    totals["m"] = 0.0
    published(collector)
    clock.now += 60.0
    totals["m"] += 60 * 150.0


def test_an_invalid_search_is_reported_but_publishes_no_capacity_and_no_headroom(
    collector, clock, totals
) -> None:
    post(collector, "/v1/capacity", **INVALID, requests_per_second=20.0)
    with_a_rate(collector, clock, totals)
    assert not published(collector)
    assert not values(collector, catalogue.CAPACITY_FOUND)
    assert values(collector, catalogue.CAPACITY_SEARCH) == {
        (*KEY, "invalid", INVALID["reason"]): 1
    }


@pytest.mark.parametrize("verdict", ["invalid", "every_rate_holds"])
def test_the_previous_valid_capacity_stays_with_its_own_time(
    collector, clock, totals, verdict
) -> None:
    post(collector, "/v1/capacity", **CAPACITY, found_at=1e9)
    post(collector, "/v1/capacity", **INVALID | {"verdict": verdict})
    with_a_rate(collector, clock, totals)
    shown = published(collector)
    assert shown[*KEY, "estimate"] == 200.0
    assert shown[KEY] == pytest.approx(0.25)
    assert values(collector, catalogue.CAPACITY_FOUND) == {KEY: 1e9}
    assert [labels[2] for labels in values(collector, catalogue.CAPACITY_SEARCH)] == [
        verdict
    ]


def test_a_search_that_finds_no_rate_withdraws_the_capacity(collector) -> None:
    post(collector, "/v1/capacity", **CAPACITY)
    post(collector, "/v1/capacity", **INVALID | {"verdict": "no_rate_holds"})
    assert not published(collector)
    assert len(values(collector, catalogue.CAPACITY_SEARCH)) == 1


def test_invalid_searches_do_not_keep_an_old_capacity_alive(collector, clock) -> None:
    post(collector, "/v1/capacity", **CAPACITY, ttl_seconds=100)
    clock.now += 90.0
    post(collector, "/v1/capacity", **INVALID, ttl_seconds=100)
    clock.now += 20.0
    assert not published(collector)
    assert values(collector, catalogue.CAPACITY_SEARCH)


@pytest.mark.parametrize("missing", ["requests_per_second", "low", "high"])
def test_a_valid_capacity_needs_its_interval(collector, missing) -> None:
    notice = {key: value for key, value in CAPACITY.items() if key != missing}
    answer = post(collector, "/v1/capacity", **notice)
    assert answer.outcome == "malformed"
    assert missing in answer.body.decode()


def test_searches_are_bounded_whatever_their_verdict(collector) -> None:
    for number in range(MAX_CAPACITIES):
        form = INVALID if number % 2 else CAPACITY
        post(collector, "/v1/capacity", **form | {"model": f"m{number}"})
    post(collector, "/v1/capacity", **INVALID | {"model": "m0"})
    post(collector, "/v1/capacity", **CAPACITY)
    found = {labels[0] for labels in values(collector, catalogue.CAPACITY_SEARCH)}
    assert len(found) == MAX_CAPACITIES
    assert {"m", "m0"} <= found
    assert "m1" not in found
