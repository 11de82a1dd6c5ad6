"""The page of a scorecard, alone or against another."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from loadtests.chaos.report import words
from loadtests.report import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.chaos.results.repeated import Repeated
    from loadtests.chaos.results.scorecard import Scorecard, ScorecardChange

_TITLE: Final = "Chaos scorecard"
CALLS: Final = {
    "worse": "Worse than before",
    "better": "Better than before, and nothing is worse",
    "same": "Nothing changed that matters",
    "unknown": "Not all can be told: more repetitions, or the experiments that are missing",
}
_TONES: Final = {"worse": "bad", "better": "good", "same": "good", "unknown": "note"}


def render(card: Scorecard, change: ScorecardChange | None = None) -> str:
    """The whole file."""
    return page.page(_TITLE, _parts(card, change))


def _parts(card: Scorecard, change: ScorecardChange | None) -> Iterator[str]:
    versions = ", ".join(
        f"{part} {' and '.join(known)}" for part, known in card.versions.items()
    )
    yield f"<header><h1>{_TITLE}</h1>"
    yield f'<p class="soft">{escape(versions or "versions unknown")}</p>'
    count = len(card.rows)
    if change is None:
        tone = "good" if card.held == count else "bad"
        yield page.verdict(tone, f"{card.held} of {count} held")
    else:
        yield page.verdict(_TONES[change.call], CALLS[change.call])
    yield "</header><main>"
    yield page.table(words.SCORE_HEADS, words.scores(card.rows))
    if change is not None:
        yield from _changes(change)
    yield "<h2>What speaks against it</h2>"
    for row in card.rows:
        if row.reasons:
            items = "".join(f"<li>{escape(reason)}</li>" for reason in row.reasons)
            strength = "" if row.strength is None else f" at {row.strength:g}"
            yield f"<h3>{escape(row.title + strength)}</h3><ul>{items}</ul>"
    if not any(row.reasons for row in card.rows):
        yield "<p>Nothing.</p>"
    yield "</main>"


def _changes(change: ScorecardChange) -> Iterator[str]:
    yield "<h2>Against before</h2>"
    yield page.table(
        ("experiment", "number", "before", "after", "call"), list(changed(change))
    )
    yield (
        '<p class="soft">A number changed only where the intervals, or from three '
        "repetitions on the ranges, lie apart by more than matters.</p>"
    )


def changed(change: ScorecardChange) -> Iterator[tuple[str, ...]]:
    """Rows: experiment, number, before, after, call."""
    for row in change.rows:
        strength = "" if row.strength is None else f" at {row.strength:g}"
        name = f"{row.title}{strength}"
        yield (name, "verdict", row.before or "absent", row.after or "absent", row.call)
        for one in row.changes:
            yield (
                name,
                words.NAMES[one.number],
                _told(one.number, one.before),
                _told(one.number, one.after),
                one.call,
            )


def _told(name: str, number: Repeated | None) -> str:
    return words.value(name, None if number is None else number.median)
