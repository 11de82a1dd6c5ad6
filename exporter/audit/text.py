"""A report for a terminal, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

from exporter.audit.finding import SEVERITIES, many, shown, shown_key
from exporter.audit.shares import CAVEAT, PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporter.audit.finding import Finding, Measure
    from exporter.audit.report import Report
    from exporter.audit.shares import Phase, TimeShare

WIDTH: Final = 100
MOST_OF_A_KIND: Final = 3
"""Findings of one id that are shown in full; the rest is counted, JSON has them all."""
MOST_SHARES: Final = 10
_BAR: Final = 36
_MARKS: Final[dict[Phase, str]] = {
    "network": "n",
    "queue": "q",
    "compute_input": "i",
    "compute_infer": "#",
    "compute_output": "o",
    "other": ".",
}
_INDENT: Final = " " * 10


def render(report: Report) -> str:
    """The report as text: what is worst comes first."""
    lines = [*_head(report), ""]
    for finding, more in grouped(report.findings):
        lines += _finding(finding)
        if more:
            lines.append(f"{_INDENT}… and {more} more of {finding.id} (JSON has all)")
    lines += _shares(report)
    return "\n".join(lines) + "\n"


def grouped(findings: Iterable[Finding]) -> Iterator[tuple[Finding, int]]:
    """Findings to show; the last of a cut kind comes with how many more there are."""
    keyed = groupby(
        sorted(findings, key=lambda f: SEVERITIES.index(f.severity)),
        key=lambda f: (f.severity, f.id),
    )
    for _, group in keyed:
        kind = list(group)
        for place, finding in enumerate(kind[:MOST_OF_A_KIND], 1):
            yield finding, max(0, len(kind) - place) if place == MOST_OF_A_KIND else 0


def number(value: float | str | None) -> str:
    """A value as people read it: four digits, no exponents where they can be avoided."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1e4:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.4g}"


def told(item: Measure, *, sourced: bool = True) -> str:
    """One piece of evidence: name, number, unit and, if `sourced`, where it was read."""
    unit = f" {item.unit}" if item.unit and item.value is not None else ""
    source = f" ({item.source})" if item.source and sourced else ""
    return f"{item.name}: {number(item.value)}{unit}{source}"


def summary(report: Report) -> str:
    """Counts by severity, those that are none left out."""
    return ", ".join(f"{n} {s}" for s, n in report.counts.items() if n) or "no findings"


def _head(report: Report) -> Iterator[str]:
    version = f"Triton {shown(report.server_version)}" if report.server_version else ""
    yield f"tritonwatch audit of {report.grpc}   {version}".rstrip()
    yield (
        f"{report.started_at}   {report.seconds:.1f} s, of which "
        f"{report.window_seconds:.1f} s of production   {many(report.models, 'model')}"
    )
    yield f"verdict: {report.verdict} ({summary(report)})"


def _finding(finding: Finding) -> Iterator[str]:
    label = f"{finding.severity.upper():<8}  "
    yield from _wrapped(f"{finding.title}  [{finding.id}]", label)
    # A source is told once, after the last number that was read there.
    following = (*(item.source for item in finding.evidence[1:]), "")
    evidence = "; ".join(
        told(item, sourced=item.source != after)
        for item, after in zip(finding.evidence, following, strict=False)
    )
    if evidence:
        yield from _wrapped(evidence, _INDENT + "· ")
    if finding.advice:
        yield from _wrapped(finding.advice, _INDENT + "> ")
    if finding.reference:
        yield from _wrapped(f"see {finding.reference}", _INDENT + "  ")


def _wrapped(text: str, label: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _shares(report: Report) -> Iterator[str]:
    if not report.time_shares:
        return
    yield ""
    yield "Where a request's time goes (mean of one request)"
    yield "  " + "  ".join(f"{mark} {phase}" for phase, mark in _MARKS.items())
    for share in report.time_shares[:MOST_SHARES]:
        name = shown_key((share.model, share.version))
        name = name if len(name) <= 30 else name[:29] + "…"  # noqa: PLR2004
        note = "" if share.source == "window" else " since load"
        yield (
            f"  {name:<30} {bar(share)} {share.total_seconds * 1e3:9.3f} ms"
            f" of {share.requests}{note}"
        )
    more = len(report.time_shares) - MOST_SHARES
    if more > 0:
        yield f"  … and {many(more, 'model')} more (JSON has all)"
    yield from _wrapped(CAVEAT, "  ")


def bar(share: TimeShare) -> str:
    """The phases as runs of their marks, `_BAR` wide."""
    drawn, edge = "", 0.0
    for phase in PHASES:
        edge += share.ratio(phase)
        drawn += _MARKS[phase] * (round(edge * _BAR) - len(drawn))
    return drawn.ljust(_BAR)
