"""The report of experiments, for people: one table over all, and each repetition.

A row of the table is an experiment. With a single journal its repetitions follow, each with
its course over time: answers to users, faults, the hypothesis, steps.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.measuring.footprint import (
    GROWTH_BYTES_PER_HOUR,
    footprint_of,
    soaked,
)
from loadtests.chaos.report import timeline
from loadtests.chaos.results.scorecard import MEASURES
from pages import units
from pages.blocks import (
    Document,
    Facts,
    Figure,
    Fold,
    Items,
    Paragraph,
    Section,
    Table,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.chaos.measuring.detection import Signal
    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.measuring.footprint import Soak
    from loadtests.chaos.measuring.observations import Evidence
    from loadtests.chaos.results.journal_file import Journal, Judged
    from loadtests.chaos.results.scorecard import Scorecard
    from pages.blocks import Block, Tone

_VERDICTS: Final[dict[str, tuple[Tone, str]]] = {
    "failed": (
        "bad",
        "FAILED: the experiment did not run to its end, so nothing is shown",
    ),
    "invalid": (
        "note",
        "INVALID: the load generator was late or too little was seen, so nothing is shown",
    ),
    "finding": ("bad", "FINDING: a weakness"),
    "held": ("good", "HELD: no weakness was found"),
}
"""The worst first."""
_MEDIANS: Final = "Medians over the repetitions. Times count from the injection."


def document(card: Scorecard, journal: Journal | None = None) -> Document:
    """Return the report of a scorecard, and of its only journal."""
    if journal is None:
        versions = (
            f"{part} {' and '.join(known)}" for part, known in card.versions.items()
        )
        about = ", ".join(versions) or "versions unknown"
        return Document("Chaos scorecard", _card(card), (about,))
    first, count = journal.repetitions[0], len(journal.repetitions)
    known = ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items()))
    about = (
        f"{units.instant(first.started_at)} · {count} repetition{'s' * (count != 1)} · "
        f"{known or 'versions unknown'}"
    )
    description = str(first.experiment.get("description", ""))
    return Document(journal.title, _journal(journal, card), (description, about))


def _card(card: Scorecard) -> Iterator[Block]:
    found = Counter[str](row.verdict for row in card.rows)
    others = [name for name in _VERDICTS if found[name] and name != "held"]
    bad = any(_VERDICTS[name][0] == "bad" for name in others)
    tone: Tone = "bad" if bad else "note" if others else "good"
    counts = ", ".join(f"{found[name]} {name}" for name in sorted(others))
    text = f"{card.held} of {len(card.rows)} held"
    yield Verdict(tone, f"{text}; {counts}" if counts else text)
    yield from _rows(card)
    yield Section(
        "Findings",
        [Section(row.title, [Items(row.reasons)]) for row in card.rows if row.reasons]
        or [Paragraph("None.")],
    )


def _journal(journal: Journal, card: Scorecard) -> Iterator[Block]:
    verdicts = {one.findings.verdict for one in journal.repetitions}
    yield Verdict(*next(shown for name, shown in _VERDICTS.items() if name in verdicts))
    if len(journal.repetitions) > 1:
        yield Items([reason for row in card.rows for reason in row.reasons])
    yield from _rows(card)
    for place, one in enumerate(journal.repetitions):
        verdict = one.findings.verdict
        yield Fold(
            f"#{one.repetition + 1}",
            repetition(one, one.findings),
            tone=_VERDICTS[verdict][0],
            badge=verdict,
            is_open=place == 0,
        )
    yield Fold("How to repeat it", [_origin(journal)], in_text=False)


def _rows(card: Scorecard) -> Iterator[Block]:
    yield Table(
        (
            *("experiment", "started", "verdict", "recovered"),
            *MEASURES.values(),
            *("lost", "wrong"),
        ),
        [
            (
                *(row.title, units.instant(row.started_at), row.verdict),
                f"{row.recovered} of {row.repetitions}",
                *(_number(name, row.numbers.get(name)) for name in MEASURES),
                "unknown" if row.lost is None else str(row.lost),
                "unknown" if row.wrong is None else str(row.wrong),
            )
            for row in card.rows
        ],
    )
    yield Paragraph(_MEDIANS, soft=True)


def _number(name: str, value: float | None) -> str:
    """A number in the unit that its name ends with."""
    return units.percent(value) if name.endswith("_ratio") else units.duration(value)


def _origin(journal: Journal) -> Facts:
    evidence = journal.repetitions[0]
    extension = extension_of(evidence.experiment)
    facts: dict[str, Any] = {
        "target": extension.get("target"),
        "blast radius": extension.get("blast_radius"),
        "seed": extension.get("seed", 1),
        "load": extension.get("load", "none"),
        "recovered means": extension.get("recovery", "the default"),
        "versions": dict(evidence.versions),
    }
    if evidence.load is not None:
        about = evidence.load.about
        facts |= {
            "profile": dict(about.profile),
            "SHA-256 of the payloads": about.payload_sha256,
            "hardware of the sender": dict(about.hardware),
            "versions of the sender": dict(about.versions),
        }
    return Facts(facts)


def repetition(seen: Evidence, found: Findings) -> Iterator[Block]:
    """Return the blocks of one repetition."""
    if found.reasons:
        yield Items(found.reasons)
    for note in found.notes:
        yield Paragraph(f"note: {note}", soft=True)
    if soak := footprint_of(seen):
        yield Section("The sidecar's footprint", [_footprint(soak)])
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
        shown = "never" if one.in_time is False and not one.note else "unknown"
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


def soak_document(seen: Judged) -> Document:
    """Return the report of a soak in short."""
    soak, found = soaked(seen), seen.findings
    back = [fault.recovery.state for fault in found.faults if fault.recovery]
    served = sum(state in {"recovered", "unaffected"} for state in back)
    title = (
        f"soak: {found.verdict.upper()}; {soak.faults} faults, "
        f"served again after {served} of {len(back)}"
    )
    return Document(title, (_footprint(soak), Items(found.reasons)))


def _footprint(soak: Soak) -> Facts:
    return Facts(
        {
            "seconds after the warm-up": f"{soak.watched_seconds:.0f}",
            "resident memory": f"{_mega(soak.resident_bytes_first)} to "
            f"{_mega(soak.resident_bytes_last)}",
            "growth an hour": f"{_mega(soak.growth_bytes_per_hour)} "
            f"[{_mega(soak.growth_low)}, {_mega(soak.growth_high)}], "
            f"{_mega(soak.growth_late)} in the second half; limit "
            f"{_mega(GROWTH_BYTES_PER_HOUR)}",
            "descriptors": "unknown"
            if soak.open_fds_growth is None
            else f"{soak.open_fds_growth:+d}",
        }
    )


def _mega(value: float | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:.2f} MB"
