"""Detection of a fault: the metrics and alerts that showed it, and from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from exporter.settings import Settings
from loadtests.chaos.measuring.signals import (
    Alerted,
    Condition,
    Shown,
    alerted,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loadtests.chaos.measuring.observations import (
        AlertChange,
        Event,
        Evidence,
        Sample,
        What,
    )
    from loadtests.chaos.measuring.recovery import Span


class DetectSettings(Settings):
    """A metric or an alert that has to show the fault, and its time limit."""

    fault: str | None = Field(default=None)
    """The kind that it is to show, each time it comes, where a method has several; the
    first one's by default."""
    metric: str | None = Field(default=None)
    """A condition on the sidecar's metrics, like `triton_probe_success == 0`, or on
    `up`, which is whether the sidecar was scraped."""
    within_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Time within which it has to hold, once the fault is in effect: verified, or felt by a
    user, whichever is earlier.
    """
    alert: str | None = Field(default=None)
    """An alert that has to fire."""
    alert_within_seconds: float = Field(default=180.0, gt=0, le=7200)
    """Time within which it has to fire."""
    also: tuple[str, ...] = Field(default=(), max_length=32)
    """Further conditions that are recorded and reported; none of them has to hold."""

    @field_validator("metric", "also")
    @classmethod
    def _are_conditions(
        cls, value: str | tuple[str, ...] | None
    ) -> str | tuple[str, ...] | None:
        for text in (value,) if isinstance(value, str) else value or ():
            Condition.parse(text)
        return value

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition, the one that has to hold first."""
        texts = (() if self.metric is None else (self.metric,)) + self.also
        return tuple(map(Condition.parse, texts))

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics that are to be watched."""
        return frozenset(condition.metric for condition in self.conditions)


class Detection(Settings):
    """The signals of one fault. Times are of the load; None did not happen."""

    metrics: tuple[Shown, ...]
    alerts: tuple[Alerted, ...]
    """Every alert that changed, the first to fire first."""
    first: Shown | None
    """The condition that held first."""


class Detected(Settings):
    """A required signal of a fault, and whether it came in time. None is unknown."""

    metric: str | None
    metric_after_seconds: float | None
    """Time from the injection."""
    metric_since_effect_seconds: float | None = None
    """Time since the fault was in effect; 0 where it showed before."""
    metric_within_seconds: float
    metric_in_time: bool | None
    alert: str | None
    alert_after_seconds: float | None
    """Time from the injection to firing."""
    alert_within_seconds: float
    alert_in_time: bool | None
    note: str = ""
    """Reason why it cannot be determined."""


def detection_of(
    samples: Sequence[Sample],
    alerts: Sequence[AlertChange],
    conditions: Sequence[Condition],
    span: Span,
    begun: Mapping[Condition, float] | None = None,
) -> Detection:
    """Return how the fault of a span was detected, up to the next one.

    `begun` is when the fault was begun that a condition is about, where that is not the
    span's first: what held for another one's sake shows nothing of it.
    """
    since = begun or {}
    found = tuple(
        shown(
            samples,
            condition,
            since.get(condition, span.inject_seconds),
            span.next_seconds,
        )
        for condition in conditions
    )
    known = [one for one in found if one.held_seconds is not None]
    return Detection(
        metrics=found,
        alerts=tuple(alerted(alerts, span.inject_seconds, span.next_seconds)),
        first=min(known, key=lambda one: one.held_seconds or 0.0, default=None),
    )


def detected(
    evidence: Evidence,
    detection: Detection,
    span: Span,
    wanted: DetectSettings,
    first_bad_seconds: float | None = None,
) -> Detected:
    """Return whether a fault was shown as it was wanted.

    `first_bad_seconds` is when the first request was due that its users found bad.
    """
    start = span.inject_seconds
    end = evidence.seen_seconds if span.next_seconds is None else span.next_seconds
    seen = end - start
    told = next((s for s in detection.metrics if s.condition == wanted.metric), None)
    metric_after = _since(None if told is None else told.held_seconds, start)
    effect = in_effect(evidence.events, span, wanted.fault, first_bad_seconds)
    since_effect = None
    if metric_after is not None:
        since_effect = max(start + metric_after - effect, 0.0)
    metric_met = _in_time(since_effect, wanted.within_seconds, end - effect)
    alert = next((a for a in detection.alerts if a.name == wanted.alert), None)
    alert_after = _since(None if alert is None else alert.firing_seconds, start)
    alert_met = _in_time(alert_after, wanted.alert_within_seconds, seen)
    notes = []
    if wanted.metric is not None and not evidence.scrapes:
        metric_met = None
        notes.append(f"no sidecar was there to show {wanted.metric}")
    elif told is not None and told.before and metric_after is None:
        metric_met = None
        notes.append(f"{wanted.metric} held before the fault already")
    if wanted.alert is not None and not evidence.alerts_watched:
        alert_met = None
        notes.append(f"no Prometheus was there to fire {wanted.alert}")
    elif alert is not None and alert.before:
        alert_met = None
        notes.append(f"{wanted.alert} fired before the fault already")
    elif wanted.alert is not None and alert_met is None:
        notes.append(f"{wanted.alert} was watched for {seen:.3g} s only")
    return Detected(
        metric=wanted.metric,
        metric_after_seconds=metric_after,
        metric_since_effect_seconds=since_effect,
        metric_within_seconds=wanted.within_seconds,
        metric_in_time=None if wanted.metric is None else metric_met,
        alert=wanted.alert,
        alert_after_seconds=alert_after,
        alert_within_seconds=wanted.alert_within_seconds,
        alert_in_time=None if wanted.alert is None else alert_met,
        note="; ".join(notes),
    )


def in_effect(
    events: Iterable[Event],
    span: Span,
    kind: str | None,
    first_bad_seconds: float | None,
) -> float:
    """Return when a fault of a span was in effect, in seconds of the load.

    Injecting takes a while: processes are started, models loaded anew. It is over when
    the fault was seen to be there, and where users feel it before, it is there.
    """
    begun = begun_at(events, span, kind)
    verified = _first(events, span, kind, "injected")
    known = [at for at in (verified, first_bad_seconds) if at is not None]
    return min((at for at in known if at >= begun), default=begun)


def begun_at(events: Iterable[Event], span: Span, kind: str | None) -> float:
    """Return when injecting the first fault of a span began, or the first of that kind."""
    found = _first(events, span, kind, "inject")
    return span.inject_seconds if found is None else found


def _first(
    events: Iterable[Event], span: Span, kind: str | None, what: What
) -> float | None:
    end = float("inf") if span.next_seconds is None else span.next_seconds
    return min(
        (
            event.at_seconds
            for event in events
            if event.what == what
            and span.inject_seconds <= event.at_seconds < end
            and (kind is None or event.detail.get("kind") == kind)
        ),
        default=None,
    )


def _since(at: float | None, start: float) -> float | None:
    return None if at is None else at - start


def _in_time(after: float | None, within: float, seen: float) -> bool | None:
    """Unknown while there was still time for it when the run ended."""
    if after is not None:
        return after <= within
    return None if seen < within else False
