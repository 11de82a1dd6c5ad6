"""Statistics over the repetitions of one experiment, together and by strength."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.histograms.quantiles import interval_ranks
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtests.chaos.measuring.findings import FaultFindings, Findings

TITLES: Final = {
    "availability_ratio": "availability during the fault",
    "p95_seconds": "p95 during the fault",
    "outage_seconds": "outage",
    "first_good_seconds": "first right answer after",
    "recovered_seconds": "recovered after",
    "restarted_seconds": "server ready again after",
    "recovered_since_restart_seconds": "recovered since then",
    "metric_seconds": "metric shown after",
    "alert_seconds": "alert fired after",
    "bad_request_seconds": "bad request-seconds",
    "budget_burnt_ratio": "error budget burnt",
}
"""The numbers of a repetition, by name. Times count from the injection of the last fault."""


class Repeated(Settings):
    """One number over all repetitions in which it is known."""

    known: int
    """Number of repetitions with a value."""
    median: float
    low: float | None
    """95 % interval of the median, distribution-free; null below six values."""
    high: float | None
    least: float
    most: float
    within: float
    """Largest distance of a value from the median."""


class Repetitions(Settings):
    """All repetitions of one experiment, or of one strength of it."""

    title: str
    strength: float | None
    repetitions: int
    held: int
    """Repetitions with nothing against them."""
    recovered: int
    """Repetitions in which users were served again, or were not affected."""
    numbers: dict[str, Repeated]
    """Values by name; one that is unknown in every repetition is left out."""


def repeated(values: Sequence[float | None]) -> Repeated | None:
    """Return the median and its order-statistic interval (Conover 1999, section 3.2).

    Interpolated between ranks (Hutson 1999), as a quantile of latency has it. Missing
    values are left out; None where nothing is known.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = statistics.median(known)
    ranks = interval_ranks(len(known), 0.5)
    ends: Sequence[float | None] = (None, None)
    if ranks is not None:
        ends = np.interp(ranks, np.arange(1, len(known) + 1), known).tolist()
    return Repeated(
        known=len(known),
        median=middle,
        low=ends[0],
        high=ends[1],
        least=known[0],
        most=known[-1],
        within=max(middle - known[0], known[-1] - middle),
    )


def repetitions(found: Sequence[Findings]) -> Repetitions:
    """Return a summary of the repetitions of one experiment.

    Raises:
        ValueError: there is none.
    """
    if not found:
        raise ValueError("found no repetition")
    each = [_numbers(one) for one in found]
    numbers = {name: repeated([one.get(name) for one in each]) for name in TITLES}
    return Repetitions(
        title=found[0].title,
        strength=found[0].strength,
        repetitions=len(found),
        held=sum(one.verdict == "held" for one in found),
        recovered=sum(_is_well(one) for one in found),
        numbers={name: one for name, one in numbers.items() if one is not None},
    )


def by_strength(found: Iterable[Findings]) -> dict[float | None, list[Findings]]:
    """Return the repetitions with each strength, in the order in which they were run.

    An experiment lists its strengths from the mildest on: a smaller quota is a stronger
    fault.
    """
    groups: dict[float | None, list[Findings]] = {}
    for one in found:
        groups.setdefault(one.strength, []).append(one)
    return groups


def _is_well(one: Findings) -> bool:
    states = [fault.recovery.state for fault in one.faults if fault.recovery]
    return bool(states) and all(s in {"recovered", "unaffected"} for s in states)


def _numbers(one: Findings) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    if one.during is not None:
        found["availability_ratio"] = one.during.availability
        found["p95_seconds"] = one.during.p95
    if one.budget is not None:
        found["budget_burnt_ratio"] = one.budget.burnt_ratio
    waited = [f.recovery.bad_request_seconds for f in one.faults if f.recovery]
    if waited:
        found["bad_request_seconds"] = sum(waited)
    return found | (_times(one.faults[-1]) if one.faults else {})


def _times(fault: FaultFindings) -> dict[str, float | None]:
    recovery, shown = fault.recovery, fault.detection.first
    if recovery is None:
        return {}
    fired = [a.firing_seconds for a in fault.detection.alerts if a.firing_seconds]
    instants = {
        "first_good_seconds": recovery.first_good_seconds,
        "recovered_seconds": recovery.recovered_seconds,
        "restarted_seconds": fault.span.restarted_seconds,
        "metric_seconds": None if shown is None else shown.held_seconds,
        "alert_seconds": min(fired, default=None),
    }
    start = fault.span.inject_seconds
    found = {name: at - start for name, at in instants.items() if at is not None}
    if {"recovered_seconds", "restarted_seconds"} <= found.keys():
        since = found["recovered_seconds"] - found["restarted_seconds"]
        found["recovered_since_restart_seconds"] = since
    # One that has not ended has no length.
    if recovery.outage is not None and recovery.outage.ended:
        found["outage_seconds"] = recovery.outage.seconds
    return dict(found)
