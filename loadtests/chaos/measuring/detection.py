"""Detection of a fault: the metrics and alerts that showed it, and from when to when."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, field_validator

from exporter.settings import Settings
from loadtests.chaos.measuring.observations import PROMETHEUS_UP, UP
from loadtests.chaos.measuring.signals import Condition, fired, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loadtests.chaos.measuring.observations import Event, Evidence
    from loadtests.chaos.measuring.served import Span
    from loadtests.chaos.measuring.signals import Shown

_GAP_SECONDS: Final = 3.0
"""Longest time without an answer of Prometheus that is no gap in its polls."""


class DetectSettings(Settings):
    """A metric or an alert that has to show the fault, and its time limit."""

    metric: str | None = Field(default=None)
    """A condition on the sidecar's metrics, like `triton_probe_success == 0`, or on
    `up`, which is whether the sidecar was scraped."""
    within_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Time within which it has to hold, once the fault is in effect: verified, or felt
    by a user, whichever is earlier.
    """
    alert: str | None = Field(default=None)
    """An alert that has to fire."""
    alert_within_seconds: float = Field(default=180.0, gt=0, le=7200)
    """Time from the injection within which it has to fire."""

    @field_validator("metric")
    @classmethod
    def _is_condition(cls, value: str | None) -> str | None:
        if value is not None:
            Condition.parse(value)
        return value

    @property
    def condition(self) -> Condition | None:
        """The condition on the metrics."""
        return None if self.metric is None else Condition.parse(self.metric)


class Signal(Settings):
    """A metric or an alert that showed a fault, or had to. Times are of the load."""

    name: str
    """The condition on the metrics, or the alert."""
    kind: Literal["metric", "alert"]
    shown_seconds: float | None
    """When the condition began to hold, or the alert fired."""
    last_seconds: float | None
    """When the condition was last seen to hold, or when the alert stopped firing; null
    where it still fires."""
    after_seconds: float | None = None
    """Time that is compared with the limit: of a metric since the fault was in effect,
    of an alert since the injection."""
    within_seconds: float | None = None
    """The limit; null for alerts that fired and did not have to."""
    in_time: bool | None = None
    """Null is unknown, with its reason in the note, or not asked for."""
    note: str = ""


def signals_of(
    evidence: Evidence,
    span: Span,
    wanted: Sequence[DetectSettings],
    first_bad_seconds: float | None = None,
) -> tuple[Signal, ...]:
    """Return how the fault of a span was detected, up to the next one.

    `first_bad_seconds` is when the first request was due that its users found bad.
    """
    alerts = fired(evidence.alerts, span.inject_seconds, span.next_seconds)
    found = []
    for one in wanted:
        if one.condition is not None:
            effect = in_effect(evidence.events, span, first_bad_seconds)
            found.append(_metric(evidence, span, one, effect))
        if one.alert is not None:
            mine = [alert for alert in alerts if alert.name == one.alert]
            found.append(_alert(evidence, span, one, mine[0] if mine else None))
    named = {one.alert for one in wanted}
    others = (alert for alert in alerts if alert.name not in named)
    return (*found, *_others(evidence, span, others))


def _metric(
    evidence: Evidence, span: Span, wanted: DetectSettings, effect: float
) -> Signal:
    condition = wanted.condition
    assert condition is not None  # noqa: S101 - checked by the caller
    start, end = span.inject_seconds, span.next_seconds
    seen = shown(evidence.series, condition, start, end)
    after = None
    if seen.first_seconds is not None:
        after = max(seen.first_seconds - effect, 0.0)
    in_time = _in_time(after, wanted.within_seconds, _end(evidence, span) - effect)
    note = ""
    if after is None and not _was_read(evidence, wanted, effect):
        in_time, note = None, "the sidecar could not be read after the fault"
    elif not evidence.of_metric(condition.metric):
        in_time, note = None, f"no series {condition.metric} was ever there"
    elif seen.before and after is None:
        in_time, note = None, f"{condition.text} was already true before the fault"
    elif in_time is None:
        note = f"{condition.text} was watched for {_end(evidence, span) - effect:.3g} s"
    return Signal(
        name=condition.text,
        kind="metric",
        shown_seconds=seen.first_seconds,
        last_seconds=seen.last_seconds,
        after_seconds=after,
        within_seconds=wanted.within_seconds,
        in_time=in_time,
        note=note,
    )


def _was_read(evidence: Evidence, wanted: DetectSettings, effect: float) -> bool:
    """Return True if the sidecar was scraped while the condition was to hold, or is `up`."""
    last = effect + wanted.within_seconds
    condition = wanted.condition
    return (condition is not None and condition.metric == UP) or any(
        value and effect <= at <= last
        for series in evidence.of_metric(UP)
        for at, value in zip(series.at_seconds, series.values, strict=True)
    )


def _alert(
    evidence: Evidence, span: Span, wanted: DetectSettings, seen: Shown | None
) -> Signal:
    start, within = span.inject_seconds, wanted.alert_within_seconds
    at = None if seen is None else seen.first_seconds
    watched = _end(evidence, span) - start
    in_time = _in_time(None if at is None else at - start, within, watched)
    gap = _unread(evidence, start, start + min(within, watched) if at is None else at)
    note = ""
    if seen is not None and seen.before:
        in_time, note = None, f"{wanted.alert} fired before the fault already"
    elif at is None and not evidence.alerts_watched:
        in_time, note = None, f"no Prometheus was read that could fire {wanted.alert}"
    elif gap is not None:
        low, high = (max(0.0, one - start) for one in gap)
        note = f"Prometheus was not read from {low:.3g} to {high:.3g} s after the fault"
        # It may have fired within the gap, or before the fault if the gap began there.
        if low < within and (not in_time or (gap[0] < start and at == gap[1])):
            in_time = None
    elif in_time is None:
        note = f"{wanted.alert} was watched for {watched:.3g} s only"
    shown_at = at if gap is None else None
    return Signal(
        name=wanted.alert or "",
        kind="alert",
        shown_seconds=shown_at,
        last_seconds=None if seen is None else seen.last_seconds,
        after_seconds=None if shown_at is None else shown_at - start,
        within_seconds=within,
        in_time=in_time,
        note=note,
    )


def _unread(evidence: Evidence, low: float, high: float) -> tuple[float, float] | None:
    """Return the first gap in the polls of Prometheus between two times; None without one.

    Journals of earlier versions do not have the polls.
    """
    polls = evidence.of_metric(PROMETHEUS_UP)
    answered = [
        at
        for one in polls
        for at, value in zip(one.at_seconds, one.values, strict=True)
        if value
    ]
    gaps = pairwise([-math.inf, *answered, evidence.seen_seconds] if polls else ())
    return next(
        ((a, b) for a, b in gaps if b - a > _GAP_SECONDS and a < high and b >= low),
        None,
    )


def _others(
    evidence: Evidence, span: Span, alerts: Iterable[Shown]
) -> Iterator[Signal]:
    """Yield alerts that fired and did not have to."""
    for alert in alerts:
        at = alert.first_seconds
        if at is not None:
            gap = _unread(evidence, span.inject_seconds, at)
            yield Signal(
                name=alert.name,
                kind="alert",
                shown_seconds=at if gap is None else None,
                last_seconds=alert.last_seconds,
            )


def in_effect(
    events: Iterable[Event], span: Span, first_bad_seconds: float | None
) -> float:
    """Return when the first fault of a span was in effect, in seconds of the load.

    Injecting takes a while: processes are started, models loaded anew. It is over when
    the fault was seen to be there, and where users feel it before, it is there.
    """
    begun = span.inject_seconds
    end = float("inf") if span.next_seconds is None else span.next_seconds
    known = [event.at_seconds for event in events if event.what == "injected"]
    known += [] if first_bad_seconds is None else [first_bad_seconds]
    return min((at for at in known if begun <= at < end), default=begun)


def _end(evidence: Evidence, span: Span) -> float:
    return evidence.seen_seconds if span.next_seconds is None else span.next_seconds


def _in_time(after: float | None, within: float, seen: float) -> bool | None:
    """Unknown while there was still time for it when the run ended."""
    if after is not None:
        return after <= within
    return None if seen < within else False
