"""The verdict on a run's objective, and its table, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages import units
from pages.blocks import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.report.objective_verdict import Objective
    from loadtests.report.run_report import RunReport
    from pages.blocks import Tone


def objective_verdict(report: RunReport) -> tuple[Tone, str] | None:
    """Return the tone and the sentence; None where the run was given no objective."""
    terms = report.objectives
    if not terms:
        return None
    failed = [one.term for one in terms if one.passed is False]
    unmeasured = [f"{o.term}: {o.unmeasured}" for o in terms if o.passed is None]
    if unmeasured and not failed:
        return "doubt", f"OBJECTIVE NOT MEASURED: {'; '.join(unmeasured)}"
    result, of = ("missed", failed) if failed else ("met", [o.term for o in terms])
    if not report.valid:
        said = f"this run is invalid; it {result} {', '.join(of)}"
        return "doubt", f"OBJECTIVE NOT PROVEN: {said}"
    said = f"OBJECTIVE {result.upper()}: {', '.join(of)}"
    near = [] if failed else [one.term for one in terms if one.certain is False]
    if near:
        doubt = f"the limit is within the 95 % interval of {', '.join(near)}"
        return "note", f"{said}; uncertain: {doubt}"
    return ("bad" if failed else "good"), said


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
                {True: "PASS", False: "FAIL", None: "not measured"}[one.passed],
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
