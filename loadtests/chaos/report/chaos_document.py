"""The report of experiments, for people: one table over all, and each repetition.

A row of the table is an experiment, or one strength of its fault. With a single journal its
repetitions follow, each with its course over time.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.report import timeline, words
from loadtests.chaos.results.degradation import curve
from loadtests.chaos.results.repeated import repetitions
from loadtests.chaos.running.users import LoadSettings
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
    Tiles,
    Verdict,
)
from pages.plots import Axis, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.evidence import Evidence
    from loadtests.chaos.measuring.findings import Findings
    from loadtests.chaos.results.degradation import Curve, Service
    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.repeated import Repetitions
    from loadtests.chaos.results.scorecard import Scorecard, ScorecardChange
    from pages.blocks import Block, Tone

_MS: Final = 1e3
_WORST_FIRST: Final = ("failed", "invalid", "finding", "held")
_TILES: Final = (
    "outage_seconds",
    "recovered_seconds",
    "availability_ratio",
    "metric_seconds",
    "alert_seconds",
    "budget_burnt_ratio",
)


def document(
    card: Scorecard,
    change: ScorecardChange | None = None,
    journal: Journal | None = None,
) -> Document:
    """Return the report of a card, of what changed, and of the only journal in it."""
    if journal is None:
        versions = (
            f"{part} {' and '.join(known)}" for part, known in card.versions.items()
        )
        about = ", ".join(versions) or "versions unknown"
        return Document("Chaos scorecard", _card(card, change), (about,))
    first, count = journal.findings[0], len(journal.findings)
    known = ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items()))
    started = datetime.fromtimestamp(first.started_at, UTC)
    about = (
        f"{started:%Y-%m-%d %H:%M:%S} UTC · {count} repetition{'s' * (count != 1)} · "
        f"{known or 'versions unknown'}"
    )
    description = str(journal.evidence[0].experiment.get("description", ""))
    return Document(journal.title, _journal(journal, card), (description, about))


def _card(card: Scorecard, change: ScorecardChange | None) -> Iterator[Block]:
    count = len(card.rows)
    held = f"{card.held} of {count} held"
    if change is None:
        yield Verdict("good" if card.held == count else "bad", held)
    else:
        yield Verdict(words.CALL_TONES[change.call], words.CALLS[change.call])
        yield Paragraph(held)
    yield Table(words.SCORE_HEADS, list(words.scores(card.rows)))
    if change is not None:
        heads = ("experiment", "number", "before", "after", "call")
        remark = (
            "A number changed only where the intervals, or from three repetitions on "
            "the ranges, do not overlap and differ by more than matters."
        )
        yield Section(
            "Compared with before",
            (Table(heads, list(words.changes(change))), Paragraph(remark, soft=True)),
        )
    yield Section(
        "Findings",
        [
            Section(words.row_name(row.title, row.strength), [Items(row.reasons)])
            for row in card.rows
            if row.reasons
        ]
        or [Paragraph("None.")],
    )


def _journal(journal: Journal, card: Scorecard) -> Iterator[Block]:
    worst = min(journal.findings, key=lambda one: _WORST_FIRST.index(one.verdict))
    yield Verdict(words.TONES[worst.verdict], words.SAID[worst.verdict])
    reasons = Counter(r for found in journal.findings for r in found.reasons)
    if reasons:
        yield Items([f"{r} ({n} times)" if n > 1 else r for r, n in reasons.items()])
    whole = repetitions(journal.findings)
    swept = _swept(journal)
    if swept is None:
        yield Tiles(_tiles(journal.findings, whole))
    yield Table(words.SCORE_HEADS, list(words.scores(card.rows)))
    if swept is not None:
        yield Section("Degradation over the fault's strength", _degradation(swept))
    elif len(journal.findings) > 1:
        yield Section("Over all repetitions", _repeated(whole))
    alone = len(journal.findings) == 1
    for place, (seen, found) in enumerate(
        zip(journal.evidence, journal.findings, strict=True)
    ):
        tone: Tone = words.TONES[found.verdict]
        yield Fold(
            words.repetition_name(found),
            repetition(found, seen, reasons=not alone),
            tone=tone,
            badge=found.verdict,
            is_open=place == 0,
        )
    yield Fold("How to repeat it", [_origin(journal)], in_text=False)


def repetition(
    found: Findings, seen: Evidence | None = None, *, reasons: bool = True
) -> Iterator[Block]:
    """Return the blocks of one repetition; plots and steps need its evidence."""
    if reasons and found.reasons:
        yield Items(found.reasons)
    for note in found.notes:
        yield Paragraph(f"note: {note}", soft=True)
    if seen is not None:
        yield Section("Over time", map(Figure, timeline.plots(seen, found)))
    served = list(words.served(found))
    if served:
        yield Section("What users saw", _users(found, served))
    yield from _faults(found)
    if found.sidecar is not None:
        yield Section("The sidecar", [Facts(words.promises(found.sidecar))])
    if seen is not None:
        yield from _steps(found, seen)


def _tiles(found: Sequence[Findings], whole: Repetitions) -> dict[str, str]:
    tiles = {
        words.NAMES[name]: words.value(name, whole.numbers[name].median)
        for name in _TILES
        if name in whole.numbers
    }
    lost = [one.lost for one in found if one.lost is not None]
    wrong = [one.wrong for one in found if one.wrong is not None]
    if lost:
        tiles["requests lost"] = str(sum(lost))
        tiles["answers wrong"] = str(sum(wrong))
    return tiles


def _repeated(found: Repetitions) -> Iterator[Block]:
    yield Table(
        ("number", "known", "median", "95 % interval"),
        [
            (
                words.NAMES[name],
                f"{number.known} of {found.repetitions}",
                words.value(name, number.median),
                words.interval(name, number),
            )
            for name, number in found.numbers.items()
        ],
    )
    if any(number.low is None for number in found.numbers.values()):
        yield Paragraph(
            "Below six repetitions a median has no interval; the range is shown.",
            soft=True,
        )


def _swept(journal: Journal) -> Curve | None:
    extension = extension_of(journal.evidence[0].experiment)
    sweep: Mapping[str, Any] = extension.get("sweep") or {}
    return curve(str(sweep.get("setting", "strength")), journal.findings)


def _degradation(found: Curve) -> Iterator[Block]:
    stood = "no strength tried" if found.stands is None else f"{found.stands:g}"
    broke = "" if found.breaks is None else f", and not at {found.breaks:g}"
    chance = "" if found.falls else " A stronger fault did less: something else varies."
    yield Paragraph(
        f"The hypothesis held up to {stood} of {found.setting}{broke}.{chance}"
    )
    yield from map(Figure, _degradation_plots(found))
    heads = (
        "strength", "runs", "requests", "availability", "interval", "p50", "p95",
        "did not hold",
    )  # fmt: skip
    rows = [("none", "", *_service(found.without), "")]
    rows += [
        (
            f"{point.strength:g}",
            str(point.repeated.repetitions),
            *_service(point),
            str(point.deviated),
        )
        for point in found.points
    ]
    yield Table(heads, rows)


def _degradation_plots(found: Curve) -> Iterator[Plot]:
    points = sorted(found.points, key=lambda point: point.strength)
    x = np.array([point.strength for point in points])
    low, high, share, p50, p95 = (
        np.array([units.or_nan(getattr(point, name)) for point in points])
        for name in ("low", "high", "availability", "p50", "p95")
    )
    axis = Axis(
        found.setting.replace("_", " "), low=float(x.min()), high=float(x.max())
    )
    yield Plot(
        "Availability during the fault",
        axis,
        Axis("percent", low=0.0, high=105.0),
        (
            Series("95 % interval", x, low * 100, "band", upper=high * 100, colour=2),
            Series("right answers", x, share * 100, colour=2),
            Series("", x, share * 100, "points", colour=2),
        ),
    )
    yield Plot(
        "Latency during the fault",
        axis,
        Axis("milliseconds", log=True),
        (
            Series("median", x, p50 * _MS, colour=0),
            Series("p95", x, p95 * _MS, colour=3),
            Series("", x, p95 * _MS, "points", colour=3),
        ),
    )


def _service(part: Service) -> tuple[str, ...]:
    return (
        str(part.requests),
        units.percent(part.availability),
        f"{units.percent(part.low)} to {units.percent(part.high)}",
        units.duration(part.p50),
        units.duration(part.p95),
    )


def _users(found: Findings, served: Sequence[tuple[str, ...]]) -> Iterator[Block]:
    heads = ("phase", "requests", "available", "p50", "p95", "p99", "lost", "wrong")
    yield Table(heads, served)
    budget = found.budget
    if budget is not None:
        yield Paragraph(
            f"Of an objective of {budget.objective_ratio:.4%}, "
            f"{units.percent(budget.bad_ratio)} of requests were bad since the fault: "
            f"{units.number(budget.burn_rate)} times what is allowed, and "
            f"{units.percent(budget.burnt_ratio)} of the budget of "
            f"{budget.window_seconds / 86400:g} days at this rate of requests.",
            soft=True,
        )


def _faults(found: Findings) -> Iterator[Block]:
    for fault in found.faults:
        blocks: list[Block] = [
            Paragraph(f"{units.capital(words.state(fault))}."),
            Facts(words.course(fault)),
        ]
        shown = list(words.detections(fault))
        if shown:
            blocks.append(Table(("shown by", "after", "within", "until"), shown))
        alerts = list(words.alerts(fault))
        if alerts:
            blocks.append(Table(("alert", "pending", "firing", "resolved"), alerts))
        yield Section(words.kinds(fault), blocks)


def _steps(found: Findings, seen: Evidence) -> Iterator[Block]:
    if found.probes:
        columns = ("probe", "phase", "asked", "met", "unknown", "lowest", "highest")
        probes = [
            (
                *(one.probe, one.phase, str(one.asked), str(one.met), str(one.unknown)),
                *(units.number(one.lowest), units.number(one.highest)),
            )
            for one in found.probes
        ]
        yield Section("The steady-state hypothesis", [Table(columns, probes)])
    if seen.steps:
        steps = [
            (
                str(step.activity.get("name", "")),
                step.part,
                f"{step.at_seconds:.3f} s",
                units.duration(step.seconds),
                "succeeded" if step.succeeded else f"failed: {step.problem}",
            )
            for step in seen.steps
        ]
        heads = ("activity", "part", "at", "took", "outcome")
        yield Section("Steps", [Table(heads, steps)])


def _origin(journal: Journal) -> Facts:
    evidence = journal.evidence[0]
    extension = extension_of(evidence.experiment)
    load: Mapping[str, Any] = extension.get("load") or {}
    facts: dict[str, Any] = {
        "target": extension.get("target"),
        "blast radius": extension.get("blast_radius"),
        "seed": extension.get("seed", 1),
        "load": load.get("profile", "the default"),
        "client": _client(load),
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


def _client(load: Mapping[str, Any]) -> str:
    """Return how the client retries, in words: recovery times depend on it."""
    try:
        return LoadSettings.model_validate(load).client
    except ValidationError:
        return "unknown"
