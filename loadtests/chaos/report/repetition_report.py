"""The report of one repetition: answers to users, faults, the hypothesis, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.chaos.report import timeline
from pages import units
from pages.blocks import Facts, Figure, Items, Paragraph, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.chaos.measuring.detection import Signal
    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.measuring.observations import Evidence
    from pages.blocks import Block


def repetition(seen: Evidence, found: Findings) -> Iterator[Block]:
    """Return the blocks of one repetition."""
    if found.reasons:
        yield Items(found.reasons)
    for note in found.notes:
        yield Paragraph(f"note: {note}", soft=True)
    yield Section("Over time", map(Figure, timeline.plots(seen, found)))
    if found.before or found.during or found.after:
        yield Section("What users saw", _users(found))
    for fault in found.faults:
        yield Section(" and ".join(fault.span.kinds), _fault(fault))
    if found.probes:
        yield Section("The steady-state hypothesis", [_probes(found)])
    if seen.steps:
        yield Section("Steps", [_steps(seen)])


def _users(found: Findings) -> Iterator[Block]:
    phases = {"before": found.before, "during": found.during, "after": found.after}
    yield Table(
        ("phase", "requests", "available", "p50", "p95", "p99", "lost", "wrong"),
        [
            (
                *(name, str(part.requests), units.percent(part.availability)),
                *map(units.duration, (part.p50, part.p95, part.p99)),
                *(str(part.lost), str(part.wrong)),
            )
            for name, part in phases.items()
            if part is not None
        ],
    )


def _fault(fault: FaultFindings) -> Iterator[Block]:
    recovery = fault.recovery
    if recovery is None:
        yield Paragraph("No requests were sent, so recovery is unknown.")
    else:
        state = recovery.state.replace("_", " ")
        yield Paragraph(f"{units.capital(state)}: {recovery.reason}.")
    yield Facts(_course(fault))
    if fault.signals:
        heads = ("signal", "shown", "took", "within", "last seen")
        start = fault.span.inject_seconds
        yield Table(heads, [_signal(one, start) for one in fault.signals])


def _since(at: float | None, start: float, missing: str = "unknown") -> str:
    return missing if at is None else f"{at - start:+.3f} s"


def _course(fault: FaultFindings) -> dict[str, str]:
    """The instants of one fault, from its injection on."""
    recovery, span, start = fault.recovery, fault.span, fault.span.inject_seconds
    found = {
        "injected at": f"{start:.3f} s",
        "seen to be undone": _since(span.reverted_seconds, start),
    }
    if span.restarted_seconds is not None:
        found["server ready again"] = _since(span.restarted_seconds, start)
    if recovery is None:
        return found
    instants = {
        "first bad request due": recovery.first_bad_seconds,
        "SLO recovered": recovery.recovered_seconds,
    }
    unaffected, outage = recovery.state == "unaffected", recovery.outage
    for name, at in instants.items():
        found[name] = "never" if unaffected else _since(at, start)
    length = "unknown"
    if outage is not None:
        length = f"{outage.seconds:.3f} s{'' if outage.ended else ' and more'}"
    return found | {
        "outage": length,
        "late beyond": units.duration(recovery.limit_seconds),
        "bad requests": str(recovery.bad_requests),
        "relapses": str(recovery.relapses),
    }


def _signal(one: Signal, start: float) -> tuple[str, ...]:
    """Return a row: when the signal showed, its time against the limit, when it ended."""
    if one.shown_seconds is not None:
        shown = (
            f"{_since(one.shown_seconds, start)}{', too late' * (one.in_time is False)}"
        )
    else:
        shown = "never" if one.in_time is False else "unknown"
    missing = "unknown" if one.shown_seconds is None else "to the end"
    limit = ("", "")
    if one.within_seconds is not None:
        limit = units.duration(one.after_seconds), f"{one.within_seconds:g} s"
    return one.name, shown, *limit, _since(one.last_seconds, start, missing)


def _probes(found: Findings) -> Table:
    return Table(
        ("probe", "phase", "asked", "met", "unknown", "lowest", "highest"),
        [
            (
                *(one.probe, one.phase, str(one.asked), str(one.met), str(one.unknown)),
                *(units.number(one.lowest), units.number(one.highest)),
            )
            for one in found.probes
        ],
    )


def _steps(seen: Evidence) -> Table:
    return Table(
        ("activity", "part", "at", "took", "outcome"),
        [
            (
                str(step.activity.get("name", "")),
                step.part,
                f"{step.at_seconds:.3f} s",
                units.duration(step.seconds),
                "succeeded" if step.succeeded else f"failed: {step.problem}",
            )
            for step in seen.steps
        ],
    )
