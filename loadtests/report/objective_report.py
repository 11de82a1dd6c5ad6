"""Objectives of a load run: what each term measured, if it was met, and its table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import Field

from exporter.settings import Settings
from loadtests.dependent_intervals import missed_side, quantile_side
from loadtests.errors import EXIT_FINDING, EXIT_INVALID, EXIT_OK
from loadtests.load_objective import parse, seconds_of
from loadtests.result import Outcome, finite
from pages import units
from pages.blocks import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.load_objective import Measure, Term
    from loadtests.report.run_report import RunReport
    from loadtests.result import Floats, Requests, RunResult
    from pages.blocks import Tone

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
    """True if the limit lies outside of the 95 % interval of the quantile, or else the
    allowed share outside of that of the misses; null where neither is known."""
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

    @property
    def unproven(self) -> str:
        """The reason why the requests met it without proving it; empty if they did not."""
        return self.interval_unknown if self.passed and self.certain is None else ""


def exit_of(result: RunResult) -> int:
    """Return the exit status of a run, and of a report of it."""
    if not result.verdict.valid:
        return EXIT_INVALID
    terms = objectives_of(result)
    if not terms:
        return EXIT_FINDING if result.miss_ratio else EXIT_OK
    if any(term.passed is False for term in terms):
        return EXIT_FINDING
    unknown = any(term.passed is None or term.unproven for term in terms)
    return EXIT_INVALID if unknown else EXIT_OK


def objectives_of(result: RunResult) -> tuple[Objective, ...]:
    """Return each term of the run's objective, judged as `load run` judges it."""
    if not result.about.slo:
        return ()
    return tuple(judged(t, result.requests) for t in parse(result.about.slo).terms)


def judged(term: Term, requests: Requests) -> Objective:
    """Return a term, judged by the requests of a run."""
    known: dict[str, Any] = {
        "term": term.text,
        "measure": term.measure,
        "limit_seconds": term.limit_seconds,
        "allowed_ratio": term.allowed_ratio,
    }
    reason = term.unmeasured(requests)
    failed = len(requests) - requests.count(Outcome.OK)
    # Too many failures decide, whatever the answers would have shown.
    if reason and failed <= term.allowed_ratio * len(requests):
        known |= {"passed": None, "missed_ratio": None}
        return Objective(**known, certain=None, seconds=None, unmeasured=reason)
    left_out = 0 if reason else int(term.gapless(requests).sum())
    share = float(term.misses(requests).sum()) / (len(requests) - left_out)
    passed = share <= term.allowed_ratio
    known |= {"passed": passed, "missed_ratio": share, "without_gap": left_out}
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
    measured = requests.where(~term.gapless(requests))
    waits = _seconds(measured, term.measure)
    side = quantile_side(waits, 1.0 - term.allowed_ratio, _CONFIDENCE)
    certain, reason = _outside(term.limit_seconds, side.low, side.high), side.reason
    if certain is None:
        late = np.where(term.misses(measured), np.inf, 0.0)
        late_share = missed_side(late, _CONFIDENCE)
        allowed = term.allowed_ratio
        certain = _outside(allowed, late_share.low, late_share.high) or None
        if passed and not certain and not late_share.reason:
            most = units.percent(late_share.high)
            shown = f"at most {most} miss it; make it longer"
            reason = f"{len(measured)} requests show only that {shown}"
    return Objective(
        **known,
        certain=certain,
        seconds=Measured(value=side.value, low=finite(side.low), high=finite(side.high))
        if math.isfinite(side.value)
        else None,
        interval_unknown=reason,
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


def objective_verdict(report: RunReport) -> tuple[Tone, str] | None:
    """Return the tone and the sentence; None where the run was given no objective."""
    terms = report.objectives
    if not terms:
        return None
    failed = [one.term for one in terms if one.passed is False]
    unmeasured = [f"{o.term}: {o.unmeasured}" for o in terms if o.passed is None]
    if unmeasured and not failed:
        return "doubt", f"OBJECTIVE NOT MEASURED: {'; '.join(unmeasured)}"
    unproven = [f"{o.term}: {o.unproven}" for o in terms if o.unproven]
    if unproven and not failed:
        return "doubt", f"OBJECTIVE NOT PROVEN: not enough data; {'; '.join(unproven)}"
    result, of = ("missed", failed) if failed else ("met", [o.term for o in terms])
    if not report.valid:
        said = f"this run is invalid; it {result} {', '.join(of)}"
        return "doubt", f"OBJECTIVE NOT PROVEN: {said}"
    said = f"OBJECTIVE {result.upper()}: {', '.join(of)}"
    judged_by = [one for one in terms if one.term in of]
    doubts = [
        f"the limit is within the 95 % interval of {one.term}"
        if one.certain is False
        else f"{one.term}: {one.interval_unknown}"
        for one in judged_by
        if not one.certain
    ]
    if doubts:
        said = f"{said}; uncertain: {'; '.join(doubts)}"
    return ("bad" if failed else "note" if doubts else "good"), said


def objective_table(terms: Sequence[Objective]) -> Table:
    """One row for each term."""
    return Table(
        (
            "objective",
            "result",
            "measured",
            "95 % interval",
            "limit",
            "missed",
            "may miss",
        ),
        [
            (
                one.term,
                "not proven"
                if one.unproven
                else {True: "PASS", False: "FAIL", None: "not measured"}[one.passed],
                _measured(one),
                _interval(one),
                _limit(one),
                units.percent(one.missed_ratio),
                units.percent(one.allowed_ratio),
            )
            for one in terms
        ],
    )


def left_out(report: RunReport) -> list[str]:
    """Return how many requests each term does not measure."""
    return [
        f"{one.term} is not measured on {one.without_gap} of {report.requests} requests: "
        "answers of one response or token have no gap."
        for one in report.objectives
        if one.without_gap
    ]


def _measured(one: Objective) -> str:
    if one.limit_seconds is None or one.missed_ratio is None:
        return units.percent(one.missed_ratio)
    if one.seconds is None:
        return "no answer"
    return units.duration(one.seconds.value)


def _interval(one: Objective) -> str:
    if one.limit_seconds is None:
        low, high = one.missed_low, one.missed_high
        if low is None or high is None:
            return "unknown"
        return f"{units.percent(low)} to {units.percent(high)}"
    if one.seconds is None or one.seconds.low is None:
        return "unknown"
    high = one.seconds.high
    end = "no answer" if high is None else units.duration(high)
    return f"{units.duration(one.seconds.low)} to {end}"


def _limit(one: Objective) -> str:
    if one.limit_seconds is None:
        return units.percent(one.allowed_ratio)
    return units.duration(one.limit_seconds)
