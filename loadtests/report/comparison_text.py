"""A comparison for a terminal and as a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from loadtests.report import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.report.compare import Change, Comparison

_SAID = {
    "same": "no regression: every figure is the same within the tolerance",
    "better": "no regression: at least one figure is better, none is worse",
    "worse": "REGRESSION",
    "unknown": "not enough data to tell",
}


def sentence(comparison: Comparison) -> str:
    """The result."""
    said = _SAID[comparison.call]
    if comparison.problems:
        return f"not comparable: {'; '.join(comparison.problems)}"
    worse = [change.name for change in comparison.changes if change.call == "worse"]
    return f"{said} in {', '.join(worse)}" if worse else said


def render(comparison: Comparison, before: str, after: str) -> str:
    """The lines; `before` and `after` are the names of the files."""
    return "\n".join(_lines(comparison, before, after)) + "\n"


def _lines(comparison: Comparison, before: str, after: str) -> Iterator[str]:
    yield f"{after} against {before}"
    yield f"  {sentence(comparison)}"
    yield f"  {'':<9} {'before':>10} {'after':>10}  {'change':>8}  interval"
    for change in comparison.changes:
        first, second, ratio, ends = _cells(change)
        yield (
            f"  {change.name:<9} {first:>10} {second:>10}  {ratio:>8}  {ends}"
            f"  {change.call}"
        )
    yield (
        f"  more than {comparison.tolerance_ratio:.0%} matters; all intervals together "
        f"hold with {1 - comparison.error_rate:.0%}"
    )


def _cells(change: Change) -> tuple[str, str, str, str]:
    if change.name == "misses":
        return (
            page.share(change.before),
            page.share(change.after),
            page.share(change.ratio),
            f"[{page.share(change.low)}, {page.share(change.high)}]",
        )
    show = page.number if change.name == "capacity" else page.time
    return (
        show(change.before),
        show(change.after),
        _percent(change.ratio),
        f"[{_percent(change.low)}, {_percent(change.high)}]",
    )


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio - 1:+.1%}"


def html(comparison: Comparison, before: str, after: str) -> str:
    """The page."""
    tone = {"worse": "bad", "unknown": "note"}.get(comparison.call, "good")
    said = sentence(comparison)
    parts = (
        f"<header><h1>{escape(after)} against {escape(before)}</h1>",
        page.verdict(tone, f"{said[:1].upper()}{said[1:]}."),
        "</header><main>",
        page.table(
            ("figure", "before", "after", "change", "interval", "verdict"),
            ((c.name, *_cells(c), c.call) for c in comparison.changes),
        ),
        _held(comparison),
        "</main>",
    )
    return page.page("Load runs compared", parts)


def _held(comparison: Comparison) -> str:
    return (
        f'<p class="soft">More than {comparison.tolerance_ratio:.0%} matters; the chance '
        f"of a false alarm over all figures is {comparison.error_rate:.0%}.</p>"
    )
