"""Plots of one repetition over time: fault, users, checks, metrics and alerts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.chaos.measuring.served import answers_of
from loadtests.result import quantile_of
from pages.plots import Axis, Mark, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.measuring.observations import Check, Evidence
    from loadtests.chaos.measuring.served import Answers
    from loadtests.result import Floats

_SLICES: Final = 120
_LEAST_SLICE_SECONDS: Final = 0.1
_MS: Final = 1e3
_HALF_BAR: Final = 0.25
_LEAST_BAR_SECONDS: Final = 0.02
_FEW: Final = 4
"""Maximum of faults with marks; of more, only bands are drawn."""
_GOOD, _BAD, _FAULT, _SIGNAL = 2, 1, 3, 4
_ROWS: Final = (
    (5.0, "fault"),
    (4.0, "users"),
    (3.0, "checks"),
    (2.0, "metrics"),
    (1.0, "alerts"),
)
_SECONDS: Final = "seconds from the start of the load"


def plots(evidence: Evidence, found: Findings) -> Iterator[Plot]:
    """Yield the course of signals, then latency where requests were sent."""
    end = evidence.seen_seconds
    if found.faults or evidence.checks:
        yield _course(evidence, found, end)
    if evidence.load is None or not len(evidence.load.requests):
        return
    answers = answers_of(evidence.load)
    width = max(end / _SLICES, _LEAST_SLICE_SECONDS)
    edges = np.arange(0.0, answers.until_seconds + width, width)
    yield _latency(answers, edges, found, end)


def _course(evidence: Evidence, found: Findings, end: float) -> Plot:
    """A row each: fault, users, checks, metrics, alerts."""
    recoveries = [f.recovery for f in found.faults if f.recovery is not None]
    bad = _spans(((r.first_bad_seconds, r.recovered_seconds) for r in recoveries), end)
    shown, fired = (
        _spans(
            (
                (one.shown_seconds, one.last_seconds)
                for fault in found.faults
                for one in fault.signals
                if one.kind == kind
            ),
            end,
        )
        for kind in ("metric", "alert")
    )
    series = (
        *_bars("fault", [_effect(f, end) for f in found.faults], 5.0, _FAULT),
        *_bars("not served", bad, 4.0, _BAD),
        _dots("met", [c for c in evidence.checks if c.met], 3.0, _GOOD),
        _dots("not met", [c for c in evidence.checks if not c.met], 3.0, _BAD),
        *_bars("shown", shown, 2.0, _SIGNAL),
        *_bars("" if shown else "shown", fired, 1.0, _SIGNAL),
    )
    return Plot(
        "Faults, and the signals that showed them",
        Axis(_SECONDS, low=0.0, high=end),
        Axis("", low=0.4, high=5.6, ticks=_ROWS),
        tuple(one for one in series if one.x.size),
        _marks(found),
    )


def _latency(answers: Answers, edges: Floats, found: Findings, end: float) -> Plot:
    """Return the latency by slice; requests without a correct answer are at the timeout."""
    middles = (edges[1:] + edges[:-1]) / 2
    latency = answers.latency * _MS
    bounds = np.searchsorted(answers.due, edges)
    pairs = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    median, p95 = (
        np.array([quantile_of(latency[a:b][~answers.unsent[a:b]], q) for a, b in pairs])
        for q in (0.5, 0.95)
    )
    known = latency[~answers.unsent]
    low = max(float(known.min(initial=math.inf)) / 1.5, 0.01) if known.size else 0.01
    high = max(answers.timeout_seconds * _MS * 1.5, low * 10)
    limits = {f.recovery.limit_seconds for f in found.faults if f.recovery is not None}
    lines = tuple(
        Mark(f"limit {limit * _MS:.3g} ms", y=limit * _MS) for limit in limits if limit
    )
    lost = ~answers.right & ~answers.unsent
    # More than some hundreds of points are not visible, and enlarge the file.
    step = max(int(lost.sum()) // 400, 1)
    return Plot(
        "Latency by when they were due",
        Axis(_SECONDS, low=0.0, high=end),
        Axis("milliseconds", log=True, low=low, high=high),
        (
            *_shades(found, end, low, high),
            Series("median", middles, median, colour=0),
            Series("p95", middles, p95, colour=_SIGNAL),
            Series(
                "lost or wrong, at the timeout",
                *(answers.due[lost][::step], latency[lost][::step]),
                "points",
                colour=_BAD,
            ),
        ),
        (*_marks(found), *lines),
    )


def _effect(fault: FaultFindings, end: float) -> tuple[float, float]:
    reverted = fault.span.reverted_seconds
    return fault.span.inject_seconds, end if reverted is None else min(reverted, end)


def _spans(
    ends: Iterable[tuple[float | None, float | None]], last: float
) -> list[tuple[float, float]]:
    """Spans that have begun; those without an end last to the end of the plot."""
    return [(a, last if b is None else b) for a, b in ends if a is not None]


def _bars(
    name: str, spans: Sequence[tuple[float, float]], row: float, colour: int
) -> Iterator[Series]:
    """One band each, named once."""
    for place, (start, stop) in enumerate(spans):
        x = np.array([start, max(stop, start + _LEAST_BAR_SECONDS)])
        low, high = np.full(2, row - _HALF_BAR), np.full(2, row + _HALF_BAR)
        yield Series("" if place else name, x, low, "band", upper=high, colour=colour)
        yield Series("", x, np.full(2, row), "line", colour=colour)


def _dots(name: str, checks: Sequence[Check], row: float, colour: int) -> Series:
    x = np.array([check.at_seconds for check in checks], np.float64)
    return Series(name, x, np.full(x.size, row), "points", colour=colour)


def _shades(found: Findings, end: float, low: float, high: float) -> Iterator[Series]:
    """Yield bands in which the fault was in effect."""
    for place, fault in enumerate(found.faults):
        x = np.array(_effect(fault, end))
        name = "" if place else "fault"
        yield Series(
            name, x, np.full(2, low), "band", upper=np.full(2, high), colour=_FAULT
        )


def _marks(found: Findings) -> tuple[Mark, ...]:
    if len(found.faults) > _FEW:
        return ()
    marks = []
    for fault in found.faults:
        kinds = " and ".join(fault.span.kinds)
        marks.append(Mark(kinds, x=fault.span.inject_seconds))
        recovery = fault.recovery
        if recovery is not None and recovery.recovered_seconds is not None:
            marks.append(Mark("recovered", x=recovery.recovered_seconds))
    return tuple(marks)
