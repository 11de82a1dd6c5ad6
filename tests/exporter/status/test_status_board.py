"""Since when a state is known, and what the hours before were."""

from __future__ import annotations

import math

import pytest

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.samples import ReadTime, Sample
from exporter.status.status_board import RecordedHistory, StatusBoard
from exporter.triton.protocol_types import IndexEntry

KEY = ("m", "1")
UP = (Sample(catalogue.UP, 1),)
INVENTORY = Inventory(up=True, ready=True, index=(IndexEntry("m", "1", "READY"),))


def test_a_state_is_known_since_it_came_and_its_change_is_a_mark():
    now = 100.0
    board = StatusBoard(lambda: now, lambda: now)

    def state(*, serves, samples=UP):
        found = board.judge(samples, INVENTORY, {KEY: serves}, ())
        assert found.is_fresh == bool(samples)
        return found.states[KEY].state, found.states[KEY].since

    assert state(serves=True) == ("SERVING", 100)
    now = 110.0
    assert state(serves=True) == ("SERVING", 100)
    now = 120.0
    assert state(serves=False) == ("DOWN", 120)
    now = 130.0
    assert state(serves=True) == ("SERVING", 130)
    # Of a server that was not read lately nothing is known.
    now = 135.0
    assert state(serves=True, samples=()) == ("UNKNOWN", 135)
    [finding] = board.judge((), INVENTORY, {KEY: True}, ()).findings
    assert "not known to answer" in finding.text
    now = 140.0
    board.mark("configuration reloaded")
    assert board.history(None)["marks"] == [
        {"at": 120, "kind": "bad", "text": "m 1: SERVING to DOWN"},
        {"at": 130, "kind": "good", "text": "m 1: DOWN to SERVING"},
        {"at": 135, "kind": "bad", "text": "m 1: SERVING to UNKNOWN"},
        {"at": 140, "kind": "neutral", "text": "configuration reloaded"},
    ]


def test_before_the_first_read_nothing_is_wrong_unless_a_collector_fails():
    board = StatusBoard(lambda: 100.0, lambda: 100.0)
    assert board.judge((), INVENTORY, {}, ()).findings == []
    assert board.judge((), INVENTORY, {}, (), failing=[("server", "denied")]).findings


def test_a_point_is_recorded_every_ten_seconds():
    now, wall = 100.0, 5_000.0
    board = StatusBoard(lambda: wall, lambda: now)
    assert board.is_due()
    board.record([])
    assert not board.is_due()
    # A wall clock that is set back stops nothing.
    now, wall = 110.0, 1_400.0
    assert board.is_due()


def requests(total, key=KEY):
    return Sample(catalogue.REQUESTS, total, (*key, "success"))


def read_at(seconds):
    return ReadTime(catalogue.COLLECTOR_TIMESTAMP, 1e9, ("statistics",), at=seconds)


def test_rates_come_from_totals_and_a_gap_is_no_number():
    history, late = RecordedHistory(), ("late", "1")
    history.record([requests(5), read_at(0)], 0.0)
    history.record([requests(25), requests(3, late), read_at(10)], 10.0)
    history.record([requests(26), requests(9, late), read_at(20)], 20.0)
    history.record([requests(9, late), read_at(30)], 30.0)
    assert history.rates() == {
        "times": [0, 10, 20, 30],
        "lines": {"m": [None, 2, 0.1, None], "late": [None, None, 0.6, 0]},
        "marks": [],
    }


@pytest.mark.parametrize("interval", [3, 5, 7, 10, 16, 30])
def test_a_steady_rate_is_the_same_however_often_the_server_is_read(interval):
    history, other = (
        RecordedHistory(),
        Sample(catalogue.COLLECTOR_TIMESTAMP, 7, ("x",)),
    )
    for now in range(1, 302, 10):
        at = now // interval * interval
        history.record([other, requests(100 * at), read_at(at)], float(now))
    values = history.rates()["lines"]["m"]
    known = [value for value in values if value is not None]
    assert set(known) == {100}
    # Unknown only until the second read.
    assert values.index(100) == len(values) - len(known) <= -(-interval // 10)


def test_totals_that_are_no_longer_exposed_are_no_rate():
    history = RecordedHistory()
    for now in (0, 10):
        history.record([requests(now), read_at(now)], float(now))
    history.record([read_at(10)], 20.0)
    history.record([requests(30), read_at(30)], 30.0)
    history.record([requests(70), read_at(40)], 40.0)
    assert history.rates()["lines"]["m"] == [None, 1, None, None, 4]


def test_versions_of_a_model_are_added():
    history = RecordedHistory()
    second = ("m", "2")
    history.record([requests(0), read_at(0)], 0.0)
    history.record([requests(10), requests(0, second), read_at(10)], 10.0)
    history.record([requests(20), requests(30, second), read_at(20)], 20.0)
    assert history.rates()["lines"] == {"m": [None, 1, 4]}


def test_latency_is_productions_with_its_bounds_else_our_probes():
    of_it = {"model": "m", "version": "1", "protocol": "grpc", "quantile": "0.5"}
    labels = [of_it.get(label, "") for label in catalogue.PROBE_LATENCY.labels]
    probed = Sample(catalogue.PROBE_LATENCY, 0.004, tuple(labels))
    history = RecordedHistory()
    history.record([probed], 0.0)
    history.record(
        [
            probed,
            Sample(catalogue.REQUEST_LATENCY, 0.002, (*KEY, "0.5")),
            Sample(catalogue.REQUEST_LATENCY, 0.009, (*KEY, "0.9")),
            Sample(catalogue.REQUEST_LATENCY_CI, 0.001, (*KEY, "0.5", "lower")),
        ],
        10.0,
    )
    assert history.of_model(KEY) == {
        "times": [0, 10],
        "lines": {"p50": [0.004, 0.002], "p50 lower": [None, 0.001]},
    }
    assert history.of_model(("none", "1")) == {"times": [0, 10], "lines": {}}


def test_one_score_of_each_of_two_data_sets_is_recorded_with_its_interval():
    def score(dataset, metric, value):
        return Sample(catalogue.GOLDEN_SCORE, value, (*KEY, dataset, metric))

    history = RecordedHistory()
    history.record(
        [
            score("a", "match", 0.8),
            score("a", "accuracy", 0.9),
            score("b", "r2", 0.7),
            score("b", "rmse", 12.0),
            score("c", "accuracy", 0.1),
            Sample(catalogue.GOLDEN_BASELINE, 0.95, (*KEY, "a", "accuracy")),
            Sample(catalogue.GOLDEN_SCORE_CI, 0.85, (*KEY, "a", "accuracy", "lower")),
        ],
        0.0,
    )
    assert history.of_model(KEY)["lines"] == {
        "a accuracy": [0.9],
        "a accuracy baseline": [0.95],
        "a accuracy lower": [0.85],
        "b r2": [0.7],
    }


def test_runs_are_marked_when_they_begin_and_end():
    def running(*runs):
        return [
            Sample(catalogue.RUN_INFO, 1, (run, "load", "steady", "measure"))
            for run in runs
        ]

    history = RecordedHistory()
    history.record(running("old"), 0.0)  # when it began is not known
    history.record(running("old", "new"), 10.0)
    history.record(running("new"), 20.0)
    assert [(mark["at"], mark["text"]) for mark in history.rates()["marks"]] == [
        (10, "run new began"),
        (20, "run old ended"),
    ]


def test_six_hours_and_a_hundred_models_are_kept():
    history = RecordedHistory()
    for step in range(2_200):
        totals = [requests(10 * step, (f"m{n}", "1")) for n in range(2)]
        history.record([read_at(10 * step), *totals], 10.0 * step)
    recorded = history.rates()
    assert len(recorded["times"]) == len(recorded["lines"]["m0"]) == 2_160
    assert recorded["times"][-1] == 21_990
    history = RecordedHistory()
    for step in range(2):
        totals = [requests(n * step, (f"m{n:03}", "1")) for n in range(150)]
        history.record([read_at(10 * step), *totals], 10.0 * step)
    shown = history.rates()["lines"]
    assert len(shown) == 20  # the busiest of those that are kept
    assert max(shown) == "m099"


def test_a_model_that_is_gone_is_forgotten_when_its_last_point_is():
    history = RecordedHistory()
    history.record([requests(0), read_at(0)], 0.0)
    history.record([requests(10), read_at(10)], 10.0)
    assert history.rates()["lines"] == {"m": [None, 1]}
    for step in range(2, 2_162):
        history.record([], 10.0 * step)
    assert history.rates()["lines"] == {}


def test_what_no_number_stands_for_is_none():
    history = RecordedHistory()
    history.record([Sample(catalogue.REQUEST_LATENCY, math.inf, (*KEY, "0.5"))], 0.0)
    assert history.of_model(KEY)["lines"] == {"p50": [None]}
