"""The findings of one repetition: numbers, and a verdict with its reasons."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

from exporter.settings import Settings
from loadtests.chaos.measuring import served
from loadtests.chaos.measuring.detection import DetectSettings, Signal, signals_of
from loadtests.chaos.measuring.finding_reasons import judged
from loadtests.chaos.measuring.recovery import (
    Recovery,
    RecoverySettings,
    Span,
    latency_limit,
    recovery_of,
    spans,
)
from loadtests.chaos.measuring.served import answers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.observations import Check, Evidence, Phase
    from loadtests.chaos.measuring.served import Answers

EXTENSION: Final = "tritonwatch"
"""Name of our block among the extensions of an experiment."""

Verdict = Literal["held", "finding", "failed", "invalid"]
"""`failed`: it did not run to its end, so nothing is shown. `invalid`: the sender's own
trouble is in the numbers, also where an unsteady state kept the method from running.
`finding`: a weakness of what was broken."""


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
    def exit_code(self) -> int:
        """0 held; 1 a finding, or the experiment failed; 3 the numbers are not valid."""
        return {"held": 0, "invalid": 3}.get(self.verdict, 1)

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
        if isinstance(entry, dict) and entry.get("name") == EXTENSION:
            return entry
    return {}


def recovery_settings(document: Mapping[str, Any]) -> RecoverySettings:
    """Return the experiment's criteria of recovery."""
    return RecoverySettings.model_validate(extension_of(document).get("recovery", {}))


def detect_settings(document: Mapping[str, Any]) -> tuple[DetectSettings, ...]:
    """Return the conditions that have to detect the experiment's faults."""
    given = extension_of(document).get("detect", [])
    entries = given if isinstance(given, list | tuple) else [given]
    return tuple(map(DetectSettings.model_validate, entries))


def findings(evidence: Evidence) -> Findings:
    """Return the findings on a repetition.

    Raises:
        PlanError: its load was a closed loop.
    """
    settings = recovery_settings(evidence.experiment)
    wanted = detect_settings(evidence.experiment)
    faults = spans(evidence.events, settings.hold_seconds)
    answers = None if evidence.load is None else answers_of(evidence.load)
    found = tuple(
        _fault(evidence, answers, span, settings, _meant(span, faults, wanted))
        for span in faults
    )
    phases = (None, None, None) if answers is None else served.phases(answers, faults)
    # "watch": while it is broken the hypothesis is looked at, and need not hold.
    watched = extension_of(evidence.experiment).get("during") == "watch"
    spared = {"before", "during"} if watched else {"before"}
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
    return judged(draft, evidence)


def _meant(
    span: Span, faults: Sequence[Span], wanted: Sequence[DetectSettings]
) -> list[DetectSettings]:
    """Return the conditions for the faults of a span; by default the first fault's."""
    kinds = {kind for one in faults for kind in one.kinds}
    first = faults[0].kinds[0]
    return [
        one
        for one in wanted
        if (one.fault if one.fault in kinds else first) in span.kinds
    ]


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
