"""Objectives of a load run: what each term measured, and if it was met."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field

from exporter.settings import Settings
from loadtests.dependent_intervals import missed_side, quantile_side
from loadtests.load_objective import parse, seconds_of
from loadtests.result import Outcome, finite

if TYPE_CHECKING:
    from loadtests.load_objective import Measure, Term
    from loadtests.result import Floats, Requests, RunResult

_CONFIDENCE: Final = 0.95


class Measured(Settings):
    """A quantile in seconds over all requests, those without an answer infinitely late."""

    value: float
    low: float | None
    """Lower end of the 95 % interval; null where it is unknown."""
    high: float | None
    """Upper end; null also where misses make it infinite."""


class Objective(Settings):
    """One term of the objective that the run was given."""

    term: str
    """The term as given, like "p99<20ms"."""
    measure: str = Field(default="latency")
    """latency, ttft, itl or stall; of a term on errors, latency."""
    passed: bool | None
    """True if at most `allowed_ratio` of the requests missed it; null if not measured."""
    certain: bool | None
    """True if the limit lies outside of the 95 % interval; null where that is unknown."""
    limit_seconds: float | None
    """Null of a term on errors."""
    seconds: Measured | None
    """The measured quantile; null of a term on errors, and where misses make it infinite."""
    missed_ratio: float | None
    """Share of the measured requests that missed the term."""
    missed_low: float | None = None
    """Lower end of the 95 % interval of that share, of a term on errors."""
    missed_high: float | None = None
    allowed_ratio: float
    interval_unknown: str = ""
    """The reason why there is no interval."""
    effective_requests: float | None = None
    """Number of independent requests that give an interval of the same width."""
    unmeasured: str = ""
    """The reason why it was not measured."""
    without_gap: int = 0
    """Answers of one response or token, which a term on gaps does not measure."""


def objectives_of(result: RunResult) -> tuple[Objective, ...]:
    """Return each term of the run's objective, judged as `load run` judges it."""
    if not result.about.slo:
        return ()
    return tuple(_judged(t, result.requests) for t in parse(result.about.slo).terms)


def _judged(term: Term, requests: Requests) -> Objective:
    known = {
        "term": term.text,
        "measure": term.measure,
        "limit_seconds": term.limit_seconds,
        "allowed_ratio": term.allowed_ratio,
    }
    found = term.result(requests)
    known |= {
        "passed": found.passed,
        "missed_ratio": found.missed_ratio,
        "without_gap": found.without_gap,
    }
    if found.passed is None:
        return Objective(
            **known, certain=None, seconds=None, unmeasured=found.unmeasured
        )
    if term.limit_seconds is None:
        missed = term.misses(requests)
        side = missed_side(np.where(missed, np.inf, 0.0), _CONFIDENCE)
        return Objective(
            **known,
            certain=_outside(term.allowed_ratio, side.low, side.high),
            seconds=None,
            missed_low=finite(side.low),
            missed_high=finite(side.high),
            interval_unknown=side.reason,
            effective_requests=side.effective_requests or None,
        )
    waits = _seconds(requests.where(~term.gapless(requests)), term.measure)
    side = quantile_side(waits, 1.0 - term.allowed_ratio, _CONFIDENCE)
    return Objective(
        **known,
        certain=_outside(term.limit_seconds, side.low, side.high),
        seconds=Measured(value=side.value, low=finite(side.low), high=finite(side.high))
        if math.isfinite(side.value)
        else None,
        interval_unknown=side.reason,
        effective_requests=side.effective_requests or None,
    )


def _seconds(requests: Requests, measure: Measure) -> Floats:
    """Times (N,) of a measure; infinite without an answer."""
    seconds = seconds_of(requests, measure).astype(np.float64)
    answered = (requests.outcome == Outcome.OK) & ~np.isnan(seconds)
    return np.where(answered, seconds, np.inf)


def _outside(limit: float, low: float, high: float) -> bool | None:
    if math.isnan(low) or math.isnan(high):
        return None
    return not low <= limit <= high
