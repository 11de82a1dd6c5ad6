"""Which metric and which alert told of a fault, and when."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from simulated_outages import Sample, evidence, polled_up, series_of

from loadtests.chaos.measuring.detection import DetectSettings, signals_of
from loadtests.chaos.measuring.observations import (
    AlertChange,
    AlertState,
    Event,
    What,
)
from loadtests.chaos.measuring.served import Span
from loadtests.chaos.measuring.signals import Condition, Shown, fired, shown

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


def held(samples: list[Sample], text: str = f"{SUCCESS} == 0") -> Shown:
    return shown(series_of(samples), Condition.parse(text), SPAN.inject_seconds, None)


def test_a_metric_told_from_when_to_when() -> None:
    samples = polled({4.0: 1, 5.2: 1, 6.0: 0, 9.0: 0, 11.0: 1, 12.0: 1})
    found = held(samples)
    assert (found.first_seconds, found.last_seconds) == (6.0, 9.0)


def test_what_held_before_shows_nothing() -> None:
    found = held(polled({4.0: 0, 6.0: 0, 8.0: 0}))
    assert found.before
    assert found.first_seconds is None


def test_one_series_that_held_before_does_not_hide_another() -> None:
    samples = polled({4.0: 0, 6.0: 0}, protocol="http")
    samples += polled({4.0: 1, 6.0: 0}, protocol="grpc")
    assert held(samples).first_seconds == 6.0


def test_a_counter_tells_by_what_it_rose_since_the_fault() -> None:
    text = 'increase(errors_total{outcome="error"}) > 0'
    risen = polled(
        {4.0: 7, 5.5: 7, 6.5: 8, 7.0: 9, 8.0: 9}, "errors_total", outcome="error"
    )
    found = held(risen, text)
    assert (found.first_seconds, found.last_seconds) == (6.5, 7.0)
    flat = polled({4.0: 7, 8.0: 7}, "errors_total", outcome="error")
    assert held(flat, text).first_seconds is None
    unseen = polled({6.0: 7, 8.0: 7}, "errors_total", outcome="error")
    assert held(unseen, text).first_seconds is None
    other = polled({4.0: 1, 8.0: 1}, "errors_total", outcome="error", model="other")
    new = polled({6.0: 1, 8.0: 1}, "errors_total", outcome="error")
    assert held(other + new, text).first_seconds == 6.0


def test_a_counter_that_was_begun_anew_goes_on() -> None:
    text = "increase(errors_total) > 0"
    samples = polled({4.0: 7, 6.0: 0, 7.0: 1, 8.0: 1}, "errors_total")
    found = held(samples, text)
    assert (found.first_seconds, found.last_seconds) == (7.0, 7.0)


def test_it_is_over_when_it_is_over_for_all_that_showed_it() -> None:
    samples = polled({4.0: 1, 6.0: 0, 8.0: 1, 12.0: 1}, protocol="http")
    samples += polled({4.0: 1, 6.0: 1, 8.0: 0, 12.0: 1}, protocol="grpc")
    found = held(samples)
    assert (found.first_seconds, found.last_seconds) == (6.0, 8.0)


def test_the_next_fault_ends_what_is_looked_at() -> None:
    samples = polled({4.0: 1, 6.0: 1, 8.0: 0})
    condition = Condition.parse(f"{SUCCESS} == 0")
    found = shown(series_of(samples), condition, SPAN.inject_seconds, 7.0)
    assert found.first_seconds is None


def test_an_alert_is_pending_then_fires_then_is_resolved() -> None:
    changes = alerts((6.0, "pending"), (8.0, "firing"), (20.0, "inactive"))
    (found,) = fired(changes, SPAN.inject_seconds, None)
    assert (found.first_seconds, found.last_seconds) == (8.0, 20.0)
    assert not found.before


def test_what_is_said_of_an_alert_after_its_end_does_not_move_it() -> None:
    after = ((30.0, "pending"), (40.0, "inactive"))
    changes = alerts((8.0, "firing"), (20.0, "inactive"), *after)
    (found,) = fired(changes, SPAN.inject_seconds, None)
    assert (found.first_seconds, found.last_seconds) == (8.0, 20.0)


def test_an_alert_that_fires_again_is_not_resolved() -> None:
    changes = alerts((6.0, "firing"), (9.0, "inactive"), (10.0, "firing"))
    (found,) = fired(changes, SPAN.inject_seconds, None)
    assert (found.first_seconds, found.last_seconds) == (6.0, None)


def test_an_alert_that_fires_and_was_not_asked_for_is_reported_as_well() -> None:
    changes = alerts((6.0, "firing"))
    (found,) = signals_of(evidence(None, alerts=changes), SPAN, ())
    assert (found.name, found.shown_seconds) == ("TritonModelDead", 6.0)
    assert found.in_time is None


WANTED = DetectSettings(
    metric=f"{SUCCESS} == 0",
    within_seconds=2,
    alert="TritonModelDead",
    alert_within_seconds=4,
)
WATCHED = polled_up(31.0)


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
    seen = evidence(
        None,
        samples=(*samples, *WATCHED),
        alerts=changes,
        alerts_watched=True,
    )
    metric, alert = signals_of(seen, SPAN, [WANTED])
    assert metric.in_time is metric_in_time
    assert alert.in_time is alert_in_time


def test_a_sidecar_that_was_away_throughout_the_fault_showed_nothing() -> None:
    away = tuple(
        one._replace(value=float(one.at_seconds < SPAN.inject_seconds))
        for one in WATCHED
    )
    seen = evidence(None, samples=(*polled({4.0: 1}), *away), ended_seconds=30.0)
    metric, _ = signals_of(seen, SPAN, [WANTED])
    assert (metric.in_time, "could not be read" in metric.note) == (None, True)
    gone = DetectSettings(metric="up == 0", within_seconds=2)
    assert signals_of(seen, SPAN, [gone])[0].in_time


@pytest.mark.parametrize(
    ("unread", "fired_at", "in_time", "shown_at"),
    [
        ((6.0, 7.0), 8.0, True, 8.0),  # a poll that failed, and no more
        ((5.5, 8.75), 8.75, True, None),  # in time, but nobody knows when
        ((5.5, 20.0), 20.0, None, None),
        ((2.0, 8.0), 8.0, None, None),  # perhaps before the fault already
        ((2.0, 6.5), 8.0, True, None),  # not at the first poll after it
        ((5.5, 20.0), 25.0, None, None),  # perhaps for the second time
        ((12.0, 20.0), 20.0, False, None),
        ((5.5, 20.0), None, None, None),
        ((5.5, 31.0), None, None, None),
        ((0.0, 29.0), None, None, None),
        ((12.0, 20.0), None, False, None),
    ],
)
def test_an_alert_is_unknown_while_prometheus_is_not_read(
    unread: tuple[float, float],
    fired_at: float | None,
    in_time: bool | None,
    shown_at: float | None,
) -> None:
    polls = tuple(
        one._replace(
            metric="prometheus_up",
            value=float(not unread[0] <= one.at_seconds < unread[1]),
        )
        for one in WATCHED
    )
    changes = () if fired_at is None else alerts((fired_at, "firing"))
    seen = evidence(None, samples=polls, alerts=changes, alerts_watched=True)
    _, alert = signals_of(seen, SPAN, [WANTED])
    assert (alert.in_time, alert.shown_seconds) == (in_time, shown_at)
    assert ("Prometheus was not read" in alert.note) is (
        shown_at is None and (fired_at is not None or in_time is None)
    )
    if changes:  # nor is it known of one that did not have to fire
        (alert,) = signals_of(seen, SPAN, ())
        assert alert.shown_seconds == shown_at


def test_who_was_not_there_did_not_fail_to_tell() -> None:
    metric, alert = signals_of(evidence(None, ended_seconds=30.0), SPAN, [WANTED])
    assert metric.in_time is alert.in_time is None
    assert "could not be read" in metric.note
    assert "no Prometheus" in alert.note


def test_a_run_that_ends_before_it_had_to_be_told_says_nothing() -> None:
    samples = (*polled({4.0: 1, 5.5: 1}), Sample(6.0, "up", {}, 1.0))
    seen = evidence(None, samples=samples, alerts_watched=True)
    metric, alert = signals_of(seen, SPAN, [WANTED])
    assert metric.in_time is alert.in_time is None


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
    samples = tuple(polled({4.0: 1, 7.5: 0}))
    seen = evidence(None, samples=(*samples, *WATCHED), events=events)
    metric, _ = signals_of(seen, SPAN, [WANTED], felt_at)
    assert metric.shown_seconds == 7.5
    assert metric.after_seconds == took
    assert metric.in_time is (took <= WANTED.within_seconds)
