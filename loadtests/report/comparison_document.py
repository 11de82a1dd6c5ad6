"""The report of two load results compared, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pages import units
from pages.blocks import Document, Paragraph, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.report.compare import Change, Comparison
    from pages.blocks import Tone

_SAID: Final = {
    "same": "no regression: every figure is the same within the tolerance",
    "better": "no regression: at least one figure is better, none is worse",
    "worse": "REGRESSION",
    "unknown": "not enough data to tell",
}
_TONES: Final[dict[str, Tone]] = {"worse": "bad", "unknown": "note"}


def sentence(comparison: Comparison) -> str:
    """Return the result in words."""
    said = _SAID[comparison.call]
    if comparison.problems:
        return f"not comparable: {'; '.join(comparison.problems)}"
    worse = [change.name for change in comparison.changes if change.call == "worse"]
    return f"{said} in {', '.join(worse)}" if worse else said


def document(comparison: Comparison, before: str, after: str) -> Document:
    """Return the report; `before` and `after` are the names of the files."""
    return Document(
        f"{after} compared with {before}",
        (
            Verdict(_TONES.get(comparison.call, "good"), sentence(comparison)),
            Table(
                ("figure", "before", "after", "change", "interval", "verdict"),
                [(c.name, *_cells(c), c.call) for c in comparison.changes],
            ),
            Paragraph(
                f"More than {comparison.tolerance_ratio:.0%} matters; the chance of a "
                f"false alarm over all figures is {comparison.error_rate:.0%}.",
                soft=True,
            ),
        ),
    )


def _cells(change: Change) -> tuple[str, str, str, str]:
    show: Callable[[float | None], str] = units.duration
    moved: Callable[[float | None], str] = _change
    if change.name == "misses":
        show = moved = units.percent
    elif change.name == "capacity":
        show = units.number
    return (
        show(change.before),
        show(change.after),
        moved(change.ratio),
        f"[{moved(change.low)}, {moved(change.high)}]",
    )


def _change(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio - 1:+.1%}"
