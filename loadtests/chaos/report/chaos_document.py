"""The report of experiments, for people: one table over all, and each repetition.

A row of the table is an experiment, or one strength of its fault. With a single journal its
repetitions follow, each with its course over time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.report.repetition_report import outcome, repetition
from loadtests.chaos.results.scorecard import MEASURES, call_of, strength_name
from pages import units
from pages.blocks import (
    Document,
    Facts,
    Fold,
    Items,
    Paragraph,
    Section,
    Table,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.scorecard import Change, Repeated, Scorecard
    from pages.blocks import Block, Tone

_VERDICTS: Final[dict[str, tuple[Tone, str]]] = {
    "failed": (
        "bad",
        "FAILED: the experiment did not run to its end, so nothing is shown",
    ),
    "invalid": (
        "note",
        "INVALID: the load generator's own delays are in the numbers",
    ),
    "finding": ("bad", "FINDING: a weakness"),
    "held": ("good", "HELD: users were served as the hypothesis demands"),
}
"""The worst first."""
_CALLS: Final[dict[str, tuple[Tone, str]]] = {
    "worse": ("bad", "Worse than before"),
    "better": ("good", "Better than before, and nothing is worse"),
    "same": ("good", "Nothing changed that matters"),
    "unknown": (
        "note",
        "Undecided: it takes more repetitions, or the experiments that are missing",
    ),
}
_INTERVALS: Final = (
    "Medians over the repetitions; in brackets their 95 % interval, below six "
    "repetitions the range. Times count from the injection."
)
_COMPARED: Final = (
    "A number changed only where the intervals, or from three repetitions on the "
    "ranges, do not overlap and differ by more than matters."
)


def document(
    card: Scorecard,
    changes: Sequence[Change] | None = None,
    journal: Journal | None = None,
) -> Document:
    """Return the report of a scorecard, of its changes, and of its only journal."""
    if journal is None:
        versions = (
            f"{part} {' and '.join(known)}" for part, known in card.versions.items()
        )
        about = ", ".join(versions) or "versions unknown"
        return Document("Chaos scorecard", _card(card, changes), (about,))
    first, count = journal.repetitions[0], len(journal.repetitions)
    known = ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items()))
    started = datetime.fromtimestamp(first.started_at, UTC)
    about = (
        f"{started:%Y-%m-%d %H:%M:%S} UTC · {count} repetition{'s' * (count != 1)} · "
        f"{known or 'versions unknown'}"
    )
    description = str(first.experiment.get("description", ""))
    return Document(journal.title, _journal(journal, card), (description, about))


def _card(card: Scorecard, changes: Sequence[Change] | None) -> Iterator[Block]:
    count = len(card.rows)
    held = f"{card.held} of {count} held"
    if changes is None:
        yield Verdict("good" if card.held == count else "bad", held)
    else:
        yield Verdict(*_CALLS[call_of(changes)])
        yield Paragraph(held)
    yield from _rows(card)
    if changes is not None:
        heads = ("experiment", "number", "before", "after", "call")
        table = Table(heads, [_change(change) for change in changes])
        yield Section("Compared with before", (table, Paragraph(_COMPARED, soft=True)))
    yield Section(
        "Findings",
        [Section(row.name, [Items(row.reasons)]) for row in card.rows if row.reasons]
        or [Paragraph("None.")],
    )


def _journal(journal: Journal, card: Scorecard) -> Iterator[Block]:
    verdicts = {one.findings.verdict for one in journal.repetitions}
    yield Verdict(*next(told for name, told in _VERDICTS.items() if name in verdicts))
    if len(journal.repetitions) > 1:
        yield Items([reason for row in card.rows for reason in row.reasons])
    yield from _rows(card)
    for place, one in enumerate(journal.repetitions):
        verdict = one.findings.verdict
        yield Fold(
            strength_name(f"#{one.repetition + 1}", one.strength),
            repetition(one, one.findings),
            tone=_VERDICTS[verdict][0],
            badge=verdict,
            is_open=place == 0,
        )
    yield Fold("How to repeat it", [_origin(journal)], in_text=False)


def _rows(card: Scorecard) -> Iterator[Block]:
    yield Table(
        (
            *("experiment", "verdict", "recovered"),
            *(measure.title for measure in MEASURES.values()),
            *("lost", "wrong", "sidecar"),
        ),
        [
            (
                *(row.name, row.verdict, f"{row.recovered} of {row.repetitions}"),
                *(_number(name, row.numbers.get(name)) for name in MEASURES),
                "unknown" if row.lost is None else str(row.lost),
                "unknown" if row.wrong is None else str(row.wrong),
                outcome(row.sidecar_kept),
            )
            for row in card.rows
        ],
    )
    yield Paragraph(_INTERVALS, soft=True)


def _change(change: Change) -> tuple[str, ...]:
    sides = change.before, change.after
    if change.measure is None:
        return (
            change.row,
            "verdict",
            *(str(s or "absent") for s in sides),
            change.call,
        )
    name = change.measure
    numbers = (None if isinstance(side, str) else _number(name, side) for side in sides)
    return (change.row, MEASURES[name].title, *map(str, numbers), change.call)


def _number(name: str, number: Repeated | None) -> str:
    """A median in the unit that its name ends with, and its interval or range."""
    if number is None:
        return "unknown"
    tell = units.percent if name.endswith("_ratio") else units.duration
    if number.known == 1:
        return tell(number.median)
    return f"{tell(number.median)} [{tell(number.low)}, {tell(number.high)}]"


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
