"""Periods in which a signal, a condition on metrics or an alert, reported trouble."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.observations import AlertChange, Sample

    Labels = tuple[tuple[str, str], ...]

_CONDITION: Final = re.compile(
    r"\s*(?:(?P<function>increase)\s*\(\s*)?"
    r"(?P<metric>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(?P<labels>[^}]*)\})?"
    r"\s*(?P<close>\))?\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>[-+.0-9eE]+)\s*"
)
_MATCHER: Final = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*"(?P<value>[^"]*)"\s*'
)
_WANTED: Final = (
    "want one like 'triton_probe_success{model=\"m\"} == 0' or "
    "'increase(triton_probe_total{outcome=\"error\"}) > 0'"
)
_OUTCOME: Final = "outcome"
"""The label by which counters distinguish good outcomes from bad."""
_COUNTER: Final = "_total"
"""Suffix of counters; a clock's time may go back, so it is not one."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of one metric's series with a number, a subset of PromQL.

    `increase(...)` is what a counter has grown by since the fault was injected.
    """

    text: str
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    operator: str
    value: float
    increase: bool

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition that is written so.

        Raises:
            ValueError: it is none.
        """
        found = _CONDITION.fullmatch(text)
        if found is None or bool(found["function"]) != bool(found["close"]):
            raise ValueError(f"found {text!r}; {_WANTED}")
        try:
            value = float(found["value"])
        except ValueError:
            raise ValueError(f"found {text!r}; {_WANTED}") from None
        return cls(
            text=text.strip(),
            metric=found["metric"],
            matchers=tuple(_matchers(found["labels"] or "", text)),
            operator=found["operator"],
            value=value,
            increase=bool(found["function"]),
        )

    def matches(self, metric: str, labels: Mapping[str, str]) -> bool:
        """Return whether it is about that series."""
        return metric == self.metric and all(
            _fits(labels.get(name, ""), operator, value)
            for name, operator, value in self.matchers
        )

    def holds(self, value: float) -> bool:
        """Return whether a value fulfils it; NaN fulfils none."""
        if value != value:  # noqa: PLR0124 - NaN
            return False
        return {
            "==": value == self.value,
            "!=": value != self.value,
            "<": value < self.value,
            "<=": value <= self.value,
            ">": value > self.value,
            ">=": value >= self.value,
        }[self.operator]


def _matchers(labels: str, text: str) -> Iterator[tuple[str, str, str]]:
    at = 0
    while labels[at:].strip(" ,"):
        found = _MATCHER.match(labels, at)
        if found is None or labels[found.end() : found.end() + 1] not in {"", ","}:
            raise ValueError(f"found {text!r}; {_WANTED}")
        if found["operator"] in {"=~", "!~"}:
            try:
                re.compile(found["value"])
            except re.error as error:
                raise ValueError(f"found {text!r}: {error}") from None
        yield found["name"], found["operator"], found["value"]
        at = found.end() + 1


def _fits(found: str, operator: str, wanted: str) -> bool:
    if operator in {"=", "!="}:
        return (found == wanted) == (operator == "=")
    return (re.fullmatch(wanted, found) is not None) == (operator == "=~")


class Shown(Settings):
    """The span in which a condition on the metrics held."""

    condition: str
    before: bool | None
    """True if it held before the fault, and so shows nothing. None: never seen."""
    labels: dict[str, str] | None = None
    """Labels of the series that showed it first."""
    held_seconds: float | None = None
    """Time at which it first held for a series for which it had not."""
    cleared_seconds: float | None = None
    """Time from which it held for none of them, until the end. A counter never falls: failed
    attempts are over when the next one was counted as another outcome, and no more as this
    one.
    """
    last_seconds: float | None = None
    """Time at which it was last seen to hold, or such a counter to rise."""


class Alerted(Settings):
    """The states of an alert after a fault."""

    name: str
    before: bool
    """True if it was firing before."""
    pending_seconds: float | None = None
    firing_seconds: float | None = None
    resolved_seconds: float | None = None
    """Time at which it stopped firing; None while it fires."""


@dataclass(frozen=True, slots=True)
class _Held:
    """One series: whether a condition held before, since when, and until when."""

    before: bool = False
    began: float | None = None
    last: float = 0.0
    ended: float | None = None


def shown(
    samples: Iterable[Sample], condition: Condition, start: float, end: float | None
) -> Shown:
    """Return when a condition held from `start` to `end`, in seconds of the load."""
    series: dict[Labels, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.metric == condition.metric:
            series[tuple(sorted(sample.labels.items()))].append(sample)
    if condition.increase and condition.metric.endswith(_COUNTER):
        series = {labels: _counted_on(values) for labels, values in series.items()}
    mine = {
        labels: values
        for labels, values in series.items()
        if condition.matches(condition.metric, dict(labels))
    }
    # NaN says neither that it holds nor that it does not.
    looks = sorted(
        {
            value.at_seconds
            for values in mine.values()
            for value in values
            if not math.isnan(value.value)
        }
    )
    seen = bool(looks) and looks[0] < start
    found = {
        labels: _of_series(values, condition, (start, end), looks)
        for labels, values in mine.items()
    }
    before = any(one.before for one in found.values()) if seen else None
    held = {labels: one for labels, one in found.items() if one.began is not None}
    if not held:
        return Shown(condition=condition.text, before=before)
    if condition.increase:
        others = {key: rows for key, rows in series.items() if key not in mine}
        held = {
            labels: _counted_otherwise(one, mine[labels], others, end)
            for labels, one in held.items()
        }
    first = min(held, key=lambda labels: held[labels].began or 0.0)
    ends = [one.ended for one in held.values()]
    known = [at for at in ends if at is not None]
    return Shown(
        condition=condition.text,
        before=before,
        labels=dict(first),
        held_seconds=held[first].began,
        cleared_seconds=max(known) if len(known) == len(ends) else None,
        last_seconds=max(one.last for one in held.values()),
    )


def _counted_on(values: Sequence[Sample]) -> list[Sample]:
    """The same counter without resets: one that fell was begun anew at 0.

    Another process counts then, and what was counted before stays so.
    """
    found, lost, before = [], 0.0, 0.0
    for sample in values:
        if sample.value < before:
            lost += before
        if not math.isnan(sample.value):
            before = sample.value
        found.append(replace(sample, value=sample.value + lost))
    return found


def _of_series(
    values: Sequence[Sample],
    condition: Condition,
    span: tuple[float, float | None],
    looks: Sequence[float],
) -> _Held:
    """`looks` are when any series was seen that the condition is about.

    One that is gone while others are there says nothing any more.
    """
    start, end = span
    earlier = [v.value for v in values if v.at_seconds < start]
    later = [v for v in values if start <= v.at_seconds < _until(end)]
    base = 0.0
    if condition.increase and earlier:
        base = earlier[-1]
    elif condition.increase and later and looks[0] >= start:
        # A counter without an earlier value has no known increase.
        base = later[0].value
    elif earlier and condition.holds(earlier[-1]):
        return _Held(before=True)
    holding = [v.at_seconds for v in later if condition.holds(v.value - base)]
    if not holding:
        return _Held()
    ended = next((at for at in looks if holding[-1] < at < _until(end)), None)
    return _Held(began=holding[0], last=holding[-1], ended=ended)


def _counted_otherwise(
    held: _Held,
    values: Sequence[Sample],
    others: Mapping[Labels, Sequence[Sample]],
    end: float | None,
) -> _Held:
    """Until the same was counted as another outcome, and no more as this one.

    As it was where that is not so, or the series knows no outcomes.
    """
    mine = [v for v in values if v.at_seconds < _until(end)]
    labels = dict(mine[0].labels)
    if held.ended is not None or labels.pop(_OUTCOME, None) is None:
        return held
    rises = (b.at_seconds for a, b in pairwise(mine) if b.value != a.value)
    last = max(rises, default=mine[0].at_seconds)
    otherwise = (
        b.at_seconds
        for key, rows in others.items()
        if {name: value for name, value in key if name != _OUTCOME} == labels
        for a, b in pairwise(rows)
        if b.value > a.value and last < b.at_seconds < _until(end)
    )
    return replace(held, last=last, ended=min(otherwise, default=None))


def _until(end: float | None) -> float:
    return math.inf if end is None else end


def alerted(
    changes: Iterable[AlertChange], start: float, end: float | None
) -> list[Alerted]:
    """Return the alerts that fired from `start` to `end`, the first one first."""
    names: dict[str, list[AlertChange]] = defaultdict(list)
    for change in sorted(changes, key=lambda c: c.at_seconds):
        if change.at_seconds < _until(end):
            names[change.name].append(change)
    found = (_one_alert(name, mine, start) for name, mine in names.items())
    return sorted(filter(None, found), key=lambda alert: _until(alert.firing_seconds))


def _one_alert(
    name: str, changes: Sequence[AlertChange], start: float
) -> Alerted | None:
    """Return one alert over all its series: it fires while one of them does."""
    states: dict[tuple[tuple[str, str], ...], str] = {}
    before = False
    pending = firing = resolved = None
    for change in changes:
        states[tuple(sorted(change.labels.items()))] = change.state
        if change.at_seconds < start:
            before = "firing" in states.values()
            continue
        at = change.at_seconds
        if change.state == "pending" and pending is None:
            pending = at
        if change.state == "firing" and not before and firing is None:
            firing = at
        fires = "firing" in states.values()
        resolved = (
            at if firing is not None and not fires and resolved is None else resolved
        )
        resolved = None if fires else resolved
    if pending is firing is resolved is None and not before:
        return None
    return Alerted(
        name=name,
        before=before,
        pending_seconds=pending,
        firing_seconds=firing,
        resolved_seconds=resolved,
    )
