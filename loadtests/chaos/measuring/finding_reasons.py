"""The verdict on a repetition, with every reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtests.engine.sender_verdict import MAX_UNSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.chaos.measuring.detection import Signal
    from loadtests.chaos.measuring.findings import FaultFindings, Findings, Verdict
    from loadtests.chaos.measuring.observations import Evidence

RESOLUTION_SECONDS: Final = 0.05
"""Resolution of durations; a sender that is later makes the result inconclusive."""
LYING: Final = frozenset({"lying_model"})
"""Faults that make wrong answers; of any other one a single one is a finding."""
_WRONG: Final = "answers were wrong though they came back with success"


def judged(draft: Findings, evidence: Evidence) -> Findings:
    """The findings with verdict, reasons and notes."""
    failures = tuple(_failures(evidence))
    spoilt = tuple(_spoilt(draft, evidence))
    weak = tuple(_weaknesses(draft, evidence))
    verdict: Verdict = "held"
    if failures:
        verdict = "failed"
    elif spoilt:
        verdict = "invalid"
    elif weak:
        verdict = "finding"
    return draft.model_copy(
        update={
            "verdict": verdict,
            "reasons": failures + spoilt + weak,
            "notes": tuple(_notes(draft, evidence)),
        }
    )


def _failures(evidence: Evidence) -> Iterator[str]:
    if evidence.status != "completed":
        yield f"the experiment was not completed: {evidence.status}"
    for step in evidence.steps:
        if not step.succeeded:
            name = step.activity.get("name", "an activity")
            yield f"{name} failed: {step.problem or 'no reason given'}"
    yield from evidence.problems
    if evidence.load is None and _loads(evidence):
        yield "nothing was sent"


def _loads(evidence: Evidence) -> bool:
    """Return whether load was expected: an experiment that injects nothing may have none."""
    if any(event.what == "inject" for event in evidence.events):
        return True
    entries = evidence.experiment.get("extensions") or ()
    return any(isinstance(entry, dict) and entry.get("load") for entry in entries)


def _spoilt(draft: Findings, evidence: Evidence) -> Iterator[str]:
    """Yield the reasons why the numbers describe the sender instead of the server."""
    load = evidence.load
    if load is None:
        return
    unsent = sum(p.unsent for p in (draft.before, draft.during, draft.after) if p)
    if unsent > MAX_UNSENT * len(load.requests):
        yield f"the sender came too late for {unsent} of {len(load.requests)} requests"
    delay = load.dispatch_delay.quantile(0.99)
    if delay is not None and delay > RESOLUTION_SECONDS:
        yield (
            f"the sender's own p99 delay is {delay * 1e3:.3g} ms; durations are "
            f"reported to {RESOLUTION_SECONDS * 1e3:g} ms"
        )


def _weaknesses(draft: Findings, evidence: Evidence) -> Iterator[str]:
    if draft.deviated:
        missed = (p for p in draft.probes if p.met < p.asked and p.phase != "before")
        told = (
            f"{p.probe} {p.asked - p.met} of {p.asked} times {p.phase}" for p in missed
        )
        yield f"the steady state did not hold: {', '.join(told)}"
    for fault in draft.faults:
        yield from _unmet(fault)
    if draft.wrong and not _lied(draft):
        yield f"{draft.wrong} {_WRONG}"
    yield from (f"left behind: {left}" for left in evidence.leftovers)


def _lied(draft: Findings) -> bool:
    """Return whether the fault itself makes wrong answers: each is a bad request."""
    return any(LYING & set(fault.span.kinds) for fault in draft.faults)


def _unmet(fault: FaultFindings) -> Iterator[str]:
    name, recovery = " and ".join(fault.span.kinds), fault.recovery
    if recovery is not None and recovery.state not in {"recovered", "unaffected"}:
        state = recovery.state.replace("_", " ")
        yield f"{name}: recovery {state}: {recovery.reason}"
    if recovery is not None and recovery.relapses:
        yield f"{name}: bad again {recovery.relapses} times after it had been good"
    for one in fault.signals:
        if one.in_time is False:
            yield f"{name}: {one.name} {_late(one)}"


def _late(signal: Signal) -> str:
    if signal.after_seconds is None:
        return f"did not show it within {signal.within_seconds:g} s"
    return (
        f"showed it after {signal.after_seconds:.3g} s; "
        f"{signal.within_seconds:g} s are allowed"
    )


def _notes(draft: Findings, evidence: Evidence) -> Iterator[str]:
    if draft.wrong and _lied(draft):
        yield f"{draft.wrong} {_WRONG}; that was the fault"
    for fault in draft.faults:
        yield from (one.note for one in fault.signals if one.note)
    if evidence.load is not None:
        # Its warnings hold the sender's delay against the latency of one request, of
        # which nothing is told here.
        yield from (f"the load run: {said}" for said in evidence.load.verdict.reasons)
