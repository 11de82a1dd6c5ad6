"""The findings of one repetition: numbers, and a verdict with its reasons."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

from exporter.settings import Settings
from loadtests.chaos.measuring import served
from loadtests.chaos.measuring.detection import (
    DetectSettings,
    Signal,
    signals_of,
)
from loadtests.chaos.measuring.footprint import footprint_of
from loadtests.chaos.measuring.observations import NAME
from loadtests.chaos.measuring.recovery import (
    Recovery,
    RecoverySettings,
    latency_limit,
    recovery_of,
)
from loadtests.chaos.measuring.served import Span, answers_of, spans
from loadtests.engine.sender_verdict import MAX_UNSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.observations import Check, Evidence, Phase
    from loadtests.chaos.measuring.served import Answers

RESOLUTION_SECONDS: Final = 0.05
"""Resolution of durations; a sender that is later makes the result inconclusive."""
_WINDOW_SECONDS: Final = 1.0
"""Time after the undo in which a check still covers the fault: a probe's usual window."""
LYING: Final = frozenset({"lying_model"})
"""Faults that make wrong answers; of any other one a single one is a finding."""
_WRONG: Final = "answers were wrong though they came back with success"

Verdict = Literal["held", "finding", "failed", "invalid"]
"""`failed`: it did not run to its end, so there is no result. `invalid`: the sender's own
delays are in the numbers, also where an unsteady state kept the method from running, or
what had to be seen could not be. `finding`: a weakness of what was broken."""


class FaultFindings(Settings):
    """One fault, or several at about the same time."""

    span: Span
    recovery: Recovery | None
    """None where nothing was sent."""
    signals: tuple[Signal, ...]
    """The metrics and alerts that had to show it, and the other alerts that fired."""


class ProbeFindings(Settings):
    """The answers of one probe of the hypothesis in one phase."""

    probe: str
    phase: str
    asked: int
    met: int
    unknown: int
    """Evaluations of probes without a value."""
    lowest: float | None
    highest: float | None


class Findings(Settings):
    """All findings on one repetition."""

    deviated: bool
    """The steady-state hypothesis did not hold, during the method or after it."""
    verdict: Verdict
    reasons: tuple[str, ...]
    """Reasons against it."""
    notes: tuple[str, ...]
    """Facts that could not be determined, and remarks."""
    before: served.Served | None
    during: served.Served | None
    after: served.Served | None
    faults: tuple[FaultFindings, ...]
    probes: tuple[ProbeFindings, ...]

    @property
    def lost(self) -> int | None:
        """Requests without an answer, of the whole run."""
        return self._sum("lost")

    @property
    def wrong(self) -> int | None:
        """Answers of the whole run that counted as a success and were wrong."""
        return self._sum("wrong")

    def _sum(self, what: str) -> int | None:
        known = [p for p in (self.before, self.during, self.after) if p is not None]
        return sum(int(getattr(p, what)) for p in known) if known else None


def extension_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our block of an experiment; empty where it has none."""
    for entry in document.get("extensions") or ():
        if isinstance(entry, dict) and entry.get("name") == NAME:
            return entry
    return {}


def findings(evidence: Evidence) -> Findings:
    """Return the findings on a repetition.

    Raises:
        PlanError: its load was a closed loop.
    """
    ours = extension_of(evidence.experiment)
    settings = RecoverySettings.model_validate(ours.get("recovery", {}))
    given = ours.get("detect", [])
    detect = given if isinstance(given, list | tuple) else [given]
    wanted = tuple(map(DetectSettings.model_validate, detect))
    faults = spans(evidence.events, settings.hold_seconds)
    answers = None if evidence.load is None else answers_of(evidence.load)
    found = tuple(
        # The conditions are for the first fault, each time it comes.
        _fault(
            evidence,
            answers,
            span,
            settings,
            wanted if faults[0].kinds[0] in span.kinds else (),
        )
        for span in faults
    )
    phases = (None, None, None) if answers is None else served.phases(answers, faults)
    spared = {"before"} if _has_to_hold(evidence) else {"before", "during"}
    deviated = any(not c.met for c in evidence.checks if c.phase not in spared)
    draft = Findings(
        deviated=deviated,
        verdict="held",
        reasons=(),
        notes=(),
        before=phases[0],
        during=phases[1],
        after=phases[2],
        faults=found,
        probes=tuple(_probes(evidence)),
    )
    return _judged(draft, evidence)


def _has_to_hold(evidence: Evidence) -> bool:
    """Return True if there is a hypothesis and it is not only recorded during the fault."""
    document = evidence.experiment
    watched = extension_of(document).get("during") == "watch"
    return bool(document.get("steady-state-hypothesis")) and not watched


def _fault(
    evidence: Evidence,
    answers: Answers | None,
    span: Span,
    settings: RecoverySettings,
    wanted: Sequence[DetectSettings],
) -> FaultFindings:
    recovery = None
    if answers is not None:
        limit = latency_limit(answers, settings, span.inject_seconds)
        recovery = recovery_of(answers, span, settings, limit)
    felt = None if recovery is None else recovery.first_bad_seconds
    return FaultFindings(
        span=span,
        recovery=recovery,
        signals=signals_of(evidence, span, wanted, felt),
    )


def _probes(evidence: Evidence) -> Iterator[ProbeFindings]:
    groups: dict[tuple[str, Phase], list[Check]] = {}
    for check in evidence.checks:
        groups.setdefault((check.probe, check.phase), []).append(check)
    for (probe, phase), checks in groups.items():
        values = [
            c.value for c in checks if c.value is not None and math.isfinite(c.value)
        ]
        yield ProbeFindings(
            probe=probe,
            phase=phase,
            asked=len(checks),
            met=sum(check.met for check in checks),
            unknown=len(checks) - len(values),
            lowest=min(values, default=None),
            highest=max(values, default=None),
        )


def _judged(draft: Findings, evidence: Evidence) -> Findings:
    """Return the findings with their verdict, reasons and notes."""
    failures = tuple(_failures(evidence))
    spoilt = tuple(_spoilt(draft, evidence))
    weak = tuple(_weaknesses(draft, evidence))
    undecided = tuple(_undecided(draft, evidence))
    leaks: tuple[str, ...] = ()
    if soak := footprint_of(evidence):
        leaks, undecided = soak.broken, undecided + soak.undecided
    verdict: Verdict = "held"
    if failures and not (spoilt and _unsteady(evidence)):
        verdict = "failed"
    elif leaks:
        verdict = "finding"
    elif spoilt:
        verdict = "invalid"
    elif weak:
        verdict = "finding"
    elif undecided:
        verdict = "invalid"
    return draft.model_copy(
        update={
            "verdict": verdict,
            "reasons": failures + spoilt + weak + leaks + undecided,
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


def _unsteady(evidence: Evidence) -> bool:
    """Return True if the steady state did not hold before the method, so nothing ran."""
    before = [check for check in evidence.checks if check.phase == "before"]
    return not evidence.steps and not all(check.met for check in before)


def _loads(evidence: Evidence) -> bool:
    """Return True if load was expected: an experiment that injects nothing may have none."""
    if any(event.what == "inject" for event in evidence.events):
        return True
    entries = evidence.experiment.get("extensions") or ()
    return any(isinstance(entry, dict) and entry.get("load") for entry in entries)


def _spoilt(draft: Findings, evidence: Evidence) -> Iterator[str]:
    """Yield why the numbers are not valid: no lie was seen, or the sender was too late."""
    load = evidence.load
    if load is None:
        return
    # Answers of streams are not compared; their lie is for the sidecar to find.
    if _lied(draft) and not draft.wrong and not load.requests.responses.any():
        yield (
            "no wrong answer was seen, though the fault makes them: give the load's file "
            "expected answers, or send to the model over gRPC, without TLS or streams"
        )
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
        misses = (
            f"{p.probe} {p.asked - p.met} of {p.asked} times {p.phase}" for p in missed
        )
        yield f"the steady state did not hold: {', '.join(misses)}"
    for fault in draft.faults:
        yield from _unmet(fault)
    if draft.wrong and not _lied(draft):
        yield f"{draft.wrong} {_WRONG}"
    yield from (f"left behind: {left}" for left in evidence.leftovers)


def _lied(draft: Findings) -> bool:
    """Return True if the fault itself makes wrong answers: each is a bad request."""
    return any(LYING & set(fault.span.kinds) for fault in draft.faults)


def _unmet(fault: FaultFindings) -> Iterator[str]:
    name, recovery = " and ".join(fault.span.kinds), fault.recovery
    if recovery is not None and recovery.state == "not_recovered":
        yield f"{name}: did not recover: {recovery.reason}"
    if recovery is not None and recovery.relapses:
        times = "once" if recovery.relapses == 1 else f"{recovery.relapses} times"
        yield f"{name}: bad again {times} after it had been good"
    for one in fault.signals:
        if one.in_time is False:
            yield f"{name}: {one.name} {_late(one)}"


def _undecided(draft: Findings, evidence: Evidence) -> Iterator[str]:
    for fault in draft.faults:
        for one in fault.signals:
            if one.within_seconds is not None and one.in_time is None:
                yield f"it is unknown whether {one.name} showed it: {one.note}"
        name = " and ".join(fault.span.kinds)
        if fault.recovery is not None and fault.recovery.state == "unknown":
            yield f"{name}: recovery unknown: {fault.recovery.reason}"
        if _has_to_hold(evidence) and not _was_checked(fault.span, evidence):
            yield f"{name}: the steady state was not checked meanwhile; check more often"
    for event in evidence.events:
        for what in event.detail.get("lapsed", ()):
            yield f"{event.detail.get('kind')} had ended before its undo: {what}"


def _was_checked(span: Span, evidence: Evidence) -> bool:
    """Return True if a check of the hypothesis covers the fault."""
    over = math.inf if span.reverted_seconds is None else span.reverted_seconds
    return any(
        check.phase == "during"
        and span.inject_seconds <= check.at_seconds <= over + _WINDOW_SECONDS
        for check in evidence.checks
    )


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
    if draft.faults and not _has_to_hold(evidence):
        yield "service during the fault was not judged: no hypothesis had to hold"
    for fault in draft.faults:
        yield from (one.note for one in fault.signals if one.note)
    if evidence.load is not None:
        # Its warnings compare the sender's delay with the latency of one request, which
        # is not reported here.
        yield from (f"the load run: {said}" for said in evidence.load.verdict.reasons)
