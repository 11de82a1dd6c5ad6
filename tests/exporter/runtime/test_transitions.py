"""What the log says when the server or a model changes."""

from __future__ import annotations

import structlog

from exporter.access.inventory import Inventory
from exporter.runtime.model_mentions import StateLog

UP = Inventory(up=True, ready=True)
DOWN = Inventory()
A, B = ("a", "1"), ("b", "1")


def told(*looks):
    transitions = StateLog()
    with structlog.testing.capture_logs() as logs:
        for inventory, serving, *unsent in looks:
            transitions.log_changes(inventory, serving, *unsent or [{}])
    return [(entry["log_level"], entry["event"], entry.get("models")) for entry in logs]


def test_a_first_look_at_a_healthy_server_says_nothing():
    assert told((UP, {A: True})) == []


def test_down_and_up_again_are_told_once_each():
    looks = [(UP, {}), (DOWN, {}), (DOWN, {}), (UP, {}), (UP, {})]
    assert told(*looks) == [
        ("error", "server_down", None),
        ("info", "server_answers", None),
    ]


def test_a_server_that_is_up_but_no_longer_ready():
    looks = [(UP, {}), (Inventory(up=True), {}), (UP, {})]
    assert told(*looks) == [
        ("warning", "server_not_ready", None),
        ("info", "server_ready", None),
    ]


def test_a_model_that_stops_serving_and_heals():
    looks = [(UP, {A: True}), (UP, {A: False}), (UP, {A: False}), (UP, {A: True})]
    assert told(*looks) == [
        ("error", "models_not_serving", "a 1"),
        ("info", "models_serving_again", "a 1"),
    ]


def test_a_model_that_is_broken_from_the_start_is_told():
    assert told((UP, {A: False, B: True})) == [("error", "models_not_serving", "a 1")]


def test_probes_that_cannot_be_sent_are_told_once():
    looks = [(UP, {}, {B: "shape"}), (UP, {}, {A: "x", B: "shape"}), (UP, {}, {A: "x"})]
    assert told(*looks) == [
        ("warning", "probes_prove_nothing", "b 1"),
        ("warning", "probes_prove_nothing", "a 1"),
    ]


def test_hundreds_of_models_are_one_line():
    many = {(f"m{n:03}", "1"): False for n in range(500)}
    [(_, event, models)] = told((UP, many))
    assert event == "models_not_serving"
    assert models == "m000 1, m001 1, m002 1, m003 1, m004 1, …"
