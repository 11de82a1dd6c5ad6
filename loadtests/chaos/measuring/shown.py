"""When the sidecar's metrics showed a fault, and when they last did."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loadtests.chaos.measuring.evidence import Sample
    from loadtests.chaos.running.conditions import Condition

    Labels = tuple[tuple[str, str], ...]

_OUTCOME: Final = "outcome"
"""The label by which counters of tries tell the good from the bad."""
_COUNTER: Final = "_total"
"""How the names of counters end; times of a clock may go back, and are none."""


class Shown(Settings):
    """When a condition on the metrics began to hold, and when it ended."""

    condition: str
    before: bool | None
    """Whether it held before the fault: then it shows nothing. None: never seen."""
    labels: dict[str, str] | None = None
    """Of the series that showed it first."""
    held_seconds: float | None = None
    """When it was first seen to hold for a series for which it had not."""
    cleared_seconds: float | None = None
    """When it was seen to hold no more for any of them, and did not again to the end. A
    counter never falls: of tries that failed it is over when the next was counted as
    another outcome, and no more as this one."""
    last_seconds: float | None = None
    """When it was last seen to hold, or such a counter to rise."""


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
    """Return what a condition showed from `start` to `end`, in seconds of the load."""
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
        # Of a counter that was not looked at before, nothing is known to have grown.
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
