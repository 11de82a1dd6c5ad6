"""Periods in which a signal, a condition on metrics or an alert, reported trouble."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.observations import AlertChange, Series

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
        """Return the condition of this text.

        Raises:
            ValueError: it is not a condition.
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
        """Return True if it applies to that series."""
        return metric == self.metric and all(
            _fits(labels.get(name, ""), operator, value)
            for name, operator, value in self.matchers
        )

    def holds(self, value: float) -> bool:
        """Return True if a value fulfils it; NaN never does."""
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


@dataclass(frozen=True, slots=True)
class Shown:
    """The time at which a signal reported trouble, in seconds of the load; None if it never did."""

    name: str
    """The condition's text, or the alert."""
    before: bool = False
    """True if it did before the fault already."""
    first_seconds: float | None = None
    last_seconds: float | None = None
    """When it was last seen to report it: a condition to hold, a counter to rise, an
    alert to fire."""


def shown(
    series: Iterable[Series], condition: Condition, start: float, end: float | None
) -> Shown:
    """Return when a condition on the metrics held from `start` to `end`."""
    mine = [one for one in series if condition.matches(one.metric, one.labels)]
    polled_before = any(one.at_seconds[0] < start for one in mine)
    before = False
    held: list[list[float]] = []
    for one in mine:
        known = bisect_left(one.at_seconds, start)
        values = _values(one, condition, known, polled_before=polled_before)
        if not condition.increase and any(map(condition.holds, values[:known][-1:])):
            before = True
            continue
        at = [
            time
            for time, value, last in zip(
                one.at_seconds, values, [0.0, *values], strict=False
            )
            if start <= time < _until(end)
            and condition.holds(value)
            and not (condition.increase and value == last)
        ]
        if at:
            held.append(at)
    if not held:
        return Shown(condition.text, before=before)
    return Shown(
        name=condition.text,
        before=before,
        first_seconds=min(at[0] for at in held),
        last_seconds=max(at[-1] for at in held),
    )


def _values(
    series: Series, condition: Condition, known: int, *, polled_before: bool
) -> list[float]:
    """Return the values to compare; of an increase, the part since the fault.

    `known` is the number of scrapes before it. A series that appears later counts
    from 0 where others were seen before, and else from its first value.
    """
    values = list(series.values)
    if not condition.increase:
        return values
    if condition.metric.endswith(_COUNTER):
        # A counter that fell was begun anew at 0, by another process.
        lost = 0.0
        for place, (last, value) in enumerate(pairwise(series.values), 1):
            lost += last if value < last else 0.0
            values[place] += lost
    base = 0.0
    if known:
        base = values[known - 1]
    elif not polled_before:
        base = values[0]
    return [value - base for value in values]


def fired(
    changes: Iterable[AlertChange], start: float, end: float | None
) -> list[Shown]:
    """Return when each alert fired from `start` to `end`, the first one first.

    An alert fires while any of its series does. `last_seconds` is when it stopped, None
    while it still fires.
    """
    names: dict[str, list[AlertChange]] = defaultdict(list)
    for change in sorted(changes, key=lambda c: c.at_seconds):
        if change.at_seconds < _until(end):
            names[change.name].append(change)
    found = [_one_alert(name, mine, start) for name, mine in names.items()]
    known = (one for one in found if one.before or one.first_seconds is not None)
    return sorted(known, key=lambda one: _until(one.first_seconds))


def _one_alert(name: str, changes: Sequence[AlertChange], start: float) -> Shown:
    firing: set[Labels] = set()
    before = False
    first = last = None
    for change in changes:
        labels = tuple(sorted(change.labels.items()))
        (firing.add if change.state == "firing" else firing.discard)(labels)
        if change.at_seconds < start:
            before = bool(firing)
        elif firing and not before and first is None:
            first = change.at_seconds
        if firing:
            last = None
        elif last is None and first is not None:
            last = change.at_seconds
    return Shown(name, before, first, last)


def _until(end: float | None) -> float:
    return math.inf if end is None else end
