"""Repetitions of one experiment: medians, how far they can be trusted, how alike they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from exporter.quantiles import interval_ranks
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtests.chaos.measuring.findings import FaultFindings, Findings


class Repeated(Settings):
    """One number over all repetitions in which it is known."""

    known: int
    """Of so many repetitions."""
    median: float
    low: float | None
    """95 % interval of the median, whatever the distribution; null below six values."""
    high: float | None
    least: float
    most: float
    within: float
    """No value is further than that from the median."""


class Repetitions(Settings):
    """All repetitions of one experiment, or of one strength of it."""

    title: str
    strength: float | None
    repetitions: int
    held: int
    """Repetitions with nothing against them."""
    recovered: int
    """In which users were served again, or were never hit."""
    numbers: dict[str, Repeated]
    """By name; one that is not known in any repetition is left out."""


def repeated(values: Sequence[float | None]) -> Repeated | None:
    """The median and its order-statistic interval (Conover 1999, section 3.2).

    Interpolated between ranks (Hutson 1999), as a quantile of latency has it. What is
    unknown is left out; None where nothing is known.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    ranks = interval_ranks(len(known), 0.5)
    return Repeated(
        known=len(known),
        median=middle,
        low=None if ranks is None else _ranked(known, ranks[0]),
        high=None if ranks is None else _ranked(known, ranks[1]),
        least=known[0],
        most=known[-1],
        within=max(middle - known[0], known[-1] - middle),
    )


def _ranked(ordered: Sequence[float], rank: float) -> float:
    """The value of a rank from 1, between two in proportion."""
    below = math.floor(rank)
    low = ordered[below - 1]
    if below == len(ordered):
        return low
    return low + (rank - below) * (ordered[below] - low)


def repetitions(found: Sequence[Findings]) -> Repetitions:
    """Return what repetitions of one experiment have in common.

    Raises:
        ValueError: there is none.
    """
    if not found:
        raise ValueError("found no repetition")
    numbers = {
        name: repeated([number(one) for one in found])
        for name, number in NUMBERS.items()
    }
    return Repetitions(
        title=found[0].title,
        strength=found[0].strength,
        repetitions=len(found),
        held=sum(one.verdict == "held" for one in found),
        recovered=sum(_is_well(one) for one in found),
        numbers={name: one for name, one in numbers.items() if one is not None},
    )


def _is_well(one: Findings) -> bool:
    states = [
        fault.recovery.state for fault in one.faults if fault.recovery is not None
    ]
    return bool(states) and all(s in {"recovered", "unaffected"} for s in states)


def _last(one: Findings) -> FaultFindings | None:
    return one.faults[-1] if one.faults else None


def _after_fault(
    when: Callable[[FaultFindings], float | None],
) -> Callable[[Findings], float | None]:
    """Seconds from the injection of the last fault to an instant of it."""

    def number(one: Findings) -> float | None:
        fault = _last(one)
        at = None if fault is None or fault.recovery is None else when(fault)
        return None if fault is None or at is None else at - fault.span.inject_seconds

    return number


def _outage(one: Findings) -> float | None:
    """Only one that has ended has a length."""
    fault = _last(one)
    recovery = None if fault is None else fault.recovery
    if recovery is None or recovery.outage is None or not recovery.outage.ended:
        return None
    return recovery.outage.seconds


def _recovered(fault: FaultFindings) -> float | None:
    return None if fault.recovery is None else fault.recovery.recovered_seconds


def _restarted(fault: FaultFindings) -> float | None:
    return fault.span.restarted_seconds


def _since_restart(one: Findings) -> float | None:
    """Return the part of a recovery after the server was ready again."""
    recovered, ready = (_after_fault(when)(one) for when in (_recovered, _restarted))
    return None if recovered is None or ready is None else recovered - ready


def _first_good(fault: FaultFindings) -> float | None:
    return None if fault.recovery is None else fault.recovery.first_good_seconds


def _shown(fault: FaultFindings) -> float | None:
    first = fault.detection.first
    return None if first is None else first.held_seconds


def _alerted(fault: FaultFindings) -> float | None:
    fired = [a.firing_seconds for a in fault.detection.alerts if a.firing_seconds]
    return min(fired, default=None)


def _during(what: str) -> Callable[[Findings], float | None]:
    def number(one: Findings) -> float | None:
        return None if one.during is None else getattr(one.during, what)

    return number


def _burnt(one: Findings) -> float | None:
    return None if one.budget is None else one.budget.burnt_ratio


def _bad_seconds(one: Findings) -> float | None:
    known = [f.recovery.bad_request_seconds for f in one.faults if f.recovery]
    return sum(known) if known else None


NUMBERS: dict[str, Callable[[Findings], float | None]] = {
    "availability_ratio": _during("availability"),
    "p95_seconds": _during("p95"),
    "outage_seconds": _outage,
    "first_good_seconds": _after_fault(_first_good),
    "recovered_seconds": _after_fault(_recovered),
    "restarted_seconds": _after_fault(_restarted),
    "recovered_since_restart_seconds": _since_restart,
    "metric_seconds": _after_fault(_shown),
    "alert_seconds": _after_fault(_alerted),
    "bad_request_seconds": _bad_seconds,
    "budget_burnt_ratio": _burnt,
}
"""What is told of several repetitions. Times count from the injection; availability and
p95 are those while the fault was there."""
