"""The report of experiments, for people: one table over all, and each repetition.

A row of the table is an experiment. With a single journal its repetitions follow, each with
its course over time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.report.repetition_report import repetition
from loadtests.chaos.results.scorecard import MEASURES
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
    from collections.abc import Iterator

    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.scorecard import Scorecard
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
        f"{_time(first.started_at)} UTC · {count} repetition{'s' * (count != 1)} · "
        f"{known or 'versions unknown'}"
    )
    description = str(first.experiment.get("description", ""))
    return Document(journal.title, _journal(journal, card), (description, about))


def _card(card: Scorecard) -> Iterator[Block]:
    count = len(card.rows)
    tone: Tone = "good" if card.held == count else "bad"
    yield Verdict(tone, f"{card.held} of {count} held")
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
                *(row.title, _time(row.started_at), row.verdict),
                f"{row.recovered} of {row.repetitions}",
                *(_number(name, row.numbers.get(name)) for name in MEASURES),
                "unknown" if row.lost is None else str(row.lost),
                "unknown" if row.wrong is None else str(row.wrong),
            )
            for row in card.rows
        ],
    )
    yield Paragraph(_MEDIANS, soft=True)


def _time(unix_seconds: float) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%d %H:%M:%S}"


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
