"""Which metric and which alert told of a fault, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError
from simulated_outages import evidence

from loadtests.chaos.measuring.detection import (
    DetectSettings,
    begun_at,
    detected,
    detection_of,
)
from loadtests.chaos.measuring.observations import (
    AlertChange,
    AlertState,
    Event,
    Sample,
    Scrape,
    What,
)
from loadtests.chaos.measuring.recovery import Span
from loadtests.chaos.measuring.signals import Condition

SPAN = Span(
    kinds=("kill_stub",), inject_seconds=5.0, reverted_seconds=10.0, next_seconds=None
)
SUCCESS = "triton_probe_success"
MODEL = {"model": "digits"}


def polled(
    values: dict[float, float], metric: str = SUCCESS, **labels: str
) -> list[Sample]:
    return [Sample(at, metric, {**MODEL, **labels}, v) for at, v in values.items()]


def alerts(*changes: tuple[float, AlertState]) -> tuple[AlertChange, ...]:
    return tuple(
        AlertChange(at, "TritonModelDead", MODEL, state) for at, state in changes
    )


@pytest.mark.parametrize(
    ("text", "labels", "value", "holds"),
    [
        ("m == 0", {}, 0.0, True),
        ("m == 0", {}, 1.0, False),
        ("m != 0", {}, float("nan"), False),
        ('m{a="x"} > 2', {"a": "x"}, 3.0, True),
        ('m{a="x",b!="y"} >= 1e3', {"a": "x", "b": "z"}, 1000.0, True),
        ('m{a=~"x|y"} < -1', {"a": "y"}, -2.0, True),
        ('m{ a !~ "x.*" , } <= 0', {"a": "y"}, 0.0, True),
    ],
)
def test_conditions_hold(
    text: str, labels: dict[str, str], value: float, *, holds: bool
) -> None:
    condition = Condition.parse(text)
    assert condition.matches("m", labels)
    assert not condition.matches("other", labels)
    assert condition.holds(value) == holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "m = 0",
        "m == x",
        "sum(m) > 0",
        "m{a=x} > 0",
        'm{a="x" b="y"} > 0',
        "increase(m > 0",
        "increase m) > 0",
        'm{a=~"["} > 0',
        "m == 0 or m == 1",
    ],
)
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValidationError) as told:
        DetectSettings(metric=text)
    message = told.value.errors()[0]["msg"]
    assert repr(text) in message


def test_the_metric_that_told_first_and_when_it_was_over() -> None:
    samples = polled({4.0: 1, 5.2: 1, 6.0: 0, 9.0: 0, 11.0: 1, 12.0: 1})
    samples += polled({4.0: 1, 7.0: 0, 12.0: 0}, "triton_model_ready")
    conditions = [Condition.parse(f"{m} == 0") for m in ("triton_model_ready", SUCCESS)]
    found = detection_of(samples, (), conditions, SPAN)
    assert found.first is not None
    assert found.first.condition == f"{SUCCESS} == 0"
    assert found.first.held_seconds == 6.0
    assert found.first.cleared_seconds == 11.0
    ready = found.metrics[0]
    assert (ready.held_seconds, ready.cleared_seconds) == (7.0, None)


def test_what_held_before_shows_nothing() -> None:
    samples = polled({4.0: 0, 6.0: 0, 8.0: 0})
    found = detection_of(samples, (), [Condition.parse(f"{SUCCESS} == 0")], SPAN)
    assert found.first is None
    assert found.metrics[0].before is True


def test_one_series_that_held_before_does_not_hide_another() -> None:
    samples = polled({4.0: 0, 6.0: 0}, protocol="http")
    samples += polled({4.0: 1, 6.0: 0}, protocol="grpc")
    found = detection_of(samples, (), [Condition.parse(f"{SUCCESS} == 0")], SPAN)
    assert found.first is not None
    assert found.first.labels == {**MODEL, "protocol": "grpc"}


def test_a_counter_tells_by_what_it_rose_since_the_fault() -> None:
    condition = Condition.parse('increase(errors_total{outcome="error"}) > 0')
    risen = polled({4.0: 7, 5.5: 7, 6.5: 8}, "errors_total", outcome="error")
    assert detection_of(risen, (), [condition], SPAN).metrics[0].held_seconds == 6.5
    flat = polled({4.0: 7, 8.0: 7}, "errors_total", outcome="error")
    assert detection_of(flat, (), [condition], SPAN).first is None
    unseen = polled({6.0: 7, 8.0: 7}, "errors_total", outcome="error")
    assert detection_of(unseen, (), [condition], SPAN).first is None


def counted(rises: dict[str, float], **labels: str) -> list[Sample]:
    """Counters of tries by their outcome: looked at every second, one up at these times."""
    return [
        Sample(at, "tries_total", {**MODEL, **labels, "outcome": outcome}, float(n))
        for outcome, times in rises.items()
        for at in map(float, range(4, 16))
        for n in [sum(at >= time for time in times)]
    ]


FAILED = Condition.parse('increase(tries_total{outcome!="ok"}) > 0')


def test_failed_tries_are_over_when_the_next_is_counted_as_good() -> None:
    tries = counted({"ok": [4.5, 9.5, 10.5], "error": [6.5, 7.5], "timeout": [8.5]})
    (found,) = detection_of(tries, (), [FAILED], SPAN).metrics
    assert (found.held_seconds, found.last_seconds) == (7.0, 9.0)
    assert found.cleared_seconds == 10.0


@pytest.mark.parametrize(
    ("rises", "why"),
    [
        ({"ok": [4.5], "error": [6.5]}, "nothing was tried since"),
        ({"ok": [4.5, 9.5], "error": [6.5, 14.5]}, "the last one failed"),
        ({"other": [9.5], "error": [6.5]}, ""),
    ],
)
def test_failed_tries_are_not_over_while_none_was_good(
    rises: dict[str, list[float]], why: str
) -> None:
    tries = counted(rises) + counted({"ok": [9.5]}, protocol="http")
    condition = FAILED if why else Condition.parse("increase(tries_total) > 0")
    (found,) = detection_of(tries, (), [condition], SPAN).metrics
    assert found.held_seconds is not None
    assert found.cleared_seconds is None


def test_it_is_over_when_it_is_over_for_all_that_showed_it() -> None:
    samples = polled({4.0: 1, 6.0: 0, 8.0: 1, 12.0: 1}, protocol="http")
    samples += polled({4.0: 1, 6.0: 1, 8.0: 0, 12.0: 1}, protocol="grpc")
    (found,) = detection_of(
        samples, (), [Condition.parse(f"{SUCCESS} == 0")], SPAN
    ).metrics
    assert found.labels == {**MODEL, "protocol": "http"}
    assert (found.last_seconds, found.cleared_seconds) == (8.0, 12.0)


def test_a_series_that_is_gone_while_others_are_there_says_nothing_more() -> None:
    condition = Condition.parse(f"{SUCCESS} == 0")
    gone = polled({4.0: 1, 6.0: 0, 7.0: 0}, version="1")
    there = polled({4.0: 1, 7.0: 1, 8.0: 1}, version="2")
    assert detection_of(gone, (), [condition], SPAN).metrics[0].cleared_seconds is None
    both = detection_of(gone + there, (), [condition], SPAN).metrics[0]
    assert both.cleared_seconds == 8.0


def test_the_next_fault_ends_what_is_looked_at() -> None:
    span = SPAN.model_copy(update={"next_seconds": 7.0})
    samples = polled({4.0: 1, 6.0: 1, 8.0: 0})
    found = detection_of(samples, (), [Condition.parse(f"{SUCCESS} == 0")], span)
    assert found.first is None


def test_an_alert_is_pending_then_fires_then_is_resolved() -> None:
    changes = alerts((6.0, "pending"), (8.0, "firing"), (20.0, "inactive"))
    (found,) = detection_of((), changes, (), SPAN).alerts
    assert (found.pending_seconds, found.firing_seconds) == (6.0, 8.0)
    assert found.resolved_seconds == 20.0
    assert not found.before


def test_an_alert_that_fires_again_is_not_resolved() -> None:
    changes = alerts((6.0, "firing"), (9.0, "inactive"), (10.0, "firing"))
    (found,) = detection_of((), changes, (), SPAN).alerts
    assert found.resolved_seconds is None


WANTED = DetectSettings(
    metric=f"{SUCCESS} == 0",
    within_seconds=2,
    alert="TritonModelDead",
    alert_within_seconds=4,
)
WATCHED = (Scrape(1.0, 0.01, ok=True), Scrape(30.0, 0.01, ok=True))


@pytest.mark.parametrize(
    ("shown_at", "fired_at", "metric_in_time", "alert_in_time"),
    [(6.0, 8.0, True, True), (7.5, 9.5, False, False), (None, None, False, False)],
)
def test_told_in_time_or_not(
    shown_at: float | None,
    fired_at: float | None,
    *,
    metric_in_time: bool,
    alert_in_time: bool,
) -> None:
    samples = polled({4.0: 1, 5.5: 1, **({} if shown_at is None else {shown_at: 0})})
    changes = () if fired_at is None else alerts((fired_at, "firing"))
    detection = detection_of(samples, changes, WANTED.conditions, SPAN)
    seen = evidence(None, alerts=changes, alerts_watched=True, scrapes=WATCHED)
    found = detected(seen, detection, SPAN, WANTED)
    assert found.metric_in_time is metric_in_time
    assert found.alert_in_time is alert_in_time


def test_who_was_not_there_did_not_fail_to_tell() -> None:
    detection = detection_of((), (), WANTED.conditions, SPAN)
    found = detected(evidence(None, ended_seconds=30.0), detection, SPAN, WANTED)
    assert found.metric_in_time is None
    assert found.alert_in_time is None
    assert "no sidecar" in found.note
    assert "no Prometheus" in found.note


def test_a_run_that_ends_before_it_had_to_be_told_says_nothing() -> None:
    scrapes = (Scrape(1.0, 0.01, ok=True), Scrape(6.0, 0.01, ok=True))
    seen = evidence(None, scrapes=scrapes, alerts_watched=True)
    samples = polled({4.0: 1, 5.5: 1})
    detection = detection_of(samples, (), WANTED.conditions, SPAN)
    found = detected(seen, detection, SPAN, WANTED)
    assert found.metric_in_time is None
    assert found.alert_in_time is None


def happened(*events: tuple[float, What, str]) -> tuple[Event, ...]:
    return tuple(Event(at, what, {"kind": kind}) for at, what, kind in events)


@pytest.mark.parametrize(
    ("verified_at", "felt_at", "took"),
    [
        (6.5, None, 1.0),  # seen to be in effect
        (6.5, 6.0, 1.5),  # felt before that was seen
        (6.5, 4.9, 1.0),  # late before the fault was begun: no effect of it
        (None, None, 2.5),  # never seen: from when it was begun
        (8.0, None, 0.0),  # told before it was seen
    ],
)
def test_the_limit_counts_from_when_the_fault_was_there(
    verified_at: float | None, felt_at: float | None, took: float
) -> None:
    events = happened((5.0, "inject", "kill_stub"))
    if verified_at is not None:
        events += happened((verified_at, "injected", "kill_stub"))
    seen = replace(evidence(None, scrapes=WATCHED), events=events)
    detection = detection_of(polled({4.0: 1, 7.5: 0}), (), WANTED.conditions, SPAN)
    found = detected(seen, detection, SPAN, WANTED, felt_at)
    assert found.metric_after_seconds == 2.5
    assert found.metric_since_effect_seconds == took
    assert found.metric_in_time is (took <= WANTED.within_seconds)


def test_of_two_faults_the_one_counts_that_is_to_be_shown() -> None:
    events = happened(
        (5.0, "inject", "response_cache"),
        (5.4, "injected", "response_cache"),
        (7.0, "inject", "kill_stub"),
        (7.1, "injected", "kill_stub"),
    )
    seen = replace(evidence(None, scrapes=WATCHED), events=events)
    wanted = WANTED.model_copy(update={"fault": "kill_stub"})
    begun = dict.fromkeys(wanted.conditions, begun_at(events, SPAN, wanted.fault))
    samples = polled({4.0: 1, 5.5: 0, 6.0: 1, 8.1: 0})
    detection = detection_of(samples, (), wanted.conditions, SPAN, begun)
    found = detected(seen, detection, SPAN, wanted, 5.3)
    assert found.metric_since_effect_seconds == pytest.approx(1.0)
    assert found.metric_in_time is True
