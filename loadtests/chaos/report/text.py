"""Reports of experiments for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.report import words
from loadtests.chaos.report.scorecard_page import CALLS, changed
from loadtests.chaos.results.degradation import curve
from loadtests.chaos.results.repeated import repetitions
from loadtests.report import page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loadtests.chaos.measuring.findings import Findings
    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.scorecard import Scorecard, ScorecardChange


def of_journal(journal: Journal) -> str:
    """The lines of one experiment."""
    return "".join(f"{line}\n" for line in _journal(journal))


def of_scorecard(card: Scorecard, change: ScorecardChange | None = None) -> str:
    """The lines of a card, and of what changed."""
    return "".join(f"{line}\n" for line in _card(card, change))


def of_findings(found: Findings) -> str:
    """The lines of one repetition."""
    return "".join(f"{line}\n" for line in _findings(found))


def _journal(journal: Journal) -> Iterator[str]:
    yield journal.title
    for found in journal.findings:
        yield from _findings(found)
    sweep = extension_of(journal.evidence[0].experiment).get("sweep") or {}
    swept = curve(str(sweep.get("setting", "strength")), journal.findings)
    if swept is None and len(journal.findings) > 1:
        whole = repetitions(journal.findings)
        yield f"  over {whole.repetitions} repetitions, {whole.recovered} recovered:"
        for name, number in whole.numbers.items():
            yield (
                f"    {words.NAMES[name]:<28} {words.value(name, number.median):>10}   "
                f"{words.interval(name, number)}"
            )
    if swept is not None:
        yield f"  over {swept.setting}:"
        yield from _aligned(
            [
                ("strength", "availability", "p50", "p95"),
                *(
                    (
                        strength,
                        page.share(part.availability),
                        page.time(part.p50),
                        page.time(part.p95),
                    )
                    for strength, part in (
                        ("none", swept.without),
                        *((f"{one.strength:g}", one) for one in swept.points),
                    )
                ),
            ]
        )


def _findings(found: Findings) -> Iterator[str]:
    strength = "" if found.strength is None else f" at {found.strength:g}"
    yield f"  #{found.repetition + 1}{strength} {found.verdict.upper()}"
    yield from (f"    - {reason}" for reason in found.reasons)
    rows = list(words.served(found))
    if rows:
        heads = ("phase", "requests", "available", "p50", "p95", "p99", "lost", "wrong")
        yield from _aligned([heads, *rows])
    for fault in found.faults:
        yield f"    {words.kinds(fault)}: {words.state(fault)}"
        yield from (
            f"      {name:<24}{told}" for name, told in words.course(fault).items()
        )
        for told_by, after, within, until in words.detections(fault):
            yield f"      {told_by}: {after} (within {within}; until {until})"
    if found.sidecar is not None:
        yield "    the sidecar"
        yield from (
            f"      {name:<38}{told}"
            for name, told in words.promises(found.sidecar).items()
        )
    yield from (f"    note: {note}" for note in found.notes)


def _card(card: Scorecard, change: ScorecardChange | None) -> Iterator[str]:
    yield f"{card.held} of {len(card.rows)} held"
    yield from _aligned([words.SCORE_HEADS, *words.scores(card.rows)])
    for row in card.rows:
        for reason in row.reasons:
            yield f"  - {row.title}: {reason}"
    if change is not None:
        yield CALLS[change.call]
        yield from _aligned(
            [("experiment", "number", "before", "after", "call"), *changed(change)]
        )


def _aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell, the first to the left."""
    cells = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"    {'  '.join((first, *others))}".rstrip()
