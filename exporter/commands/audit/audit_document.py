"""An audit's report for people."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import SEVERITIES, many, shown, shown_key
from exporter.commands.audit.phase_shares import CAVEAT, PHASES
from pages.blocks import (
    Document,
    Facts,
    Fold,
    Paragraph,
    Section,
    Shares,
    Table,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporter.commands.audit.audit_report import Report
    from exporter.commands.audit.finding import Finding, Measure
    from exporter.commands.audit.finding_kinds import Severity
    from exporter.commands.audit.phase_shares import Phase, TimeShare
    from pages.blocks import Block, Tone

WIDTH: Final = 100
"""Columns of the text."""
MOST_OF_A_KIND: Final = 3
"""Findings of one id that are shown in full; the rest is counted, JSON has them all."""
MOST_SHARES: Final = 50
_TONES: Final[dict[Severity, Tone]] = {
    "critical": "bad",
    "warning": "note",
    "unknown": "doubt",
    "info": "info",
    "ok": "good",
}
_FOLDED: Final = frozenset({"info", "ok"})
_NAMES: Final[dict[Phase, str]] = {
    "network": "network",
    "queue": "queue",
    "compute_input": "input",
    "compute_infer": "inference",
    "compute_output": "output",
    "other": "other",
}


def document(report: Report) -> Document:
    """Return the report: the worst findings first, then where the time goes."""
    server = (report.server_name, report.server_version)
    name = " ".join(shown(part) for part in server if part)
    about = (
        f"{name or 'no answer'} · {many(report.models, 'model')} · "
        f"{report.started_at} · {report.seconds:.1f} s, of which "
        f"{report.window_seconds:.1f} s of production · "
        f"tritonwatch {report.tritonwatch_version}"
    )
    return Document(f"tritonwatch audit of {report.grpc}", _blocks(report), (about,))


def _blocks(report: Report) -> Iterator[Block]:
    counts = ", ".join(f"{n} {severity}" for severity, n in report.counts.items() if n)
    said = f"verdict: {report.verdict} ({counts or 'no findings'})"
    yield Verdict(_TONES[report.verdict], said)
    for finding, more in _grouped(report.findings):
        yield Fold(
            finding.title,
            _finding(finding),
            tone=_TONES[finding.severity],
            badge=finding.severity,
            label=finding.id,
            is_open=finding.severity not in _FOLDED,
        )
        if more:
            remark = f"… and {more} more of {finding.id} (JSON has all)"
            yield Paragraph(remark, soft=True)
    if report.time_shares:
        yield Section("Where a request's time goes", _time(report.time_shares))


def _grouped(findings: Iterable[Finding]) -> Iterator[tuple[Finding, int]]:
    """Findings to show; the last of a cut kind comes with how many more there are."""
    keyed = groupby(
        sorted(findings, key=lambda f: SEVERITIES.index(f.severity)),
        key=lambda f: (f.severity, f.id),
    )
    for _, group in keyed:
        kind = list(group)
        for place, finding in enumerate(kind[:MOST_OF_A_KIND], 1):
            yield finding, max(0, len(kind) - place) if place == MOST_OF_A_KIND else 0


def _finding(finding: Finding) -> Iterator[Block]:
    if finding.evidence:
        yield Facts([(m.name, _measure(m)) for m in finding.evidence], in_line=True)
    if finding.advice:
        yield Paragraph(finding.advice)
    if finding.reference:
        yield Paragraph(f"see {finding.reference}", soft=True)


def _measure(item: Measure) -> str:
    unit = f" {item.unit}" if item.unit and item.value is not None else ""
    source = f" ({item.source})" if item.source else ""
    return f"{_number(item.value)}{unit}{source}"


def _number(value: float | str | None) -> str:
    """Four digits, no exponents where they can be avoided."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1e4:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _time(shares: tuple[TimeShare, ...]) -> Iterator[Block]:
    for share in shares[:MOST_SHARES]:
        since = "" if share.source == "window" else " since load"
        yield Shares(
            shown_key((share.model, share.version)),
            f"{share.total_seconds * 1e3:.3f} ms",
            {name: share.ratio(phase) for phase, name in _NAMES.items()},
            f"{many(share.requests, 'request')}{since}",
        )
    more = len(shares) - MOST_SHARES
    if more > 0:
        yield Paragraph(f"… and {many(more, 'model')} more (JSON has all)", soft=True)
    heads = ("model", *_NAMES.values())
    table = Table(heads, [_row(share) for share in shares[:MOST_SHARES]])
    yield Fold("In milliseconds", [table], in_text=False)
    yield Paragraph(CAVEAT, soft=True)


def _row(share: TimeShare) -> tuple[str, ...]:
    return (
        shown_key((share.model, share.version)),
        *(
            "unknown"
            if phase == "network" and share.network is None
            else f"{share.seconds(phase) * 1e3:.3f}"
            for phase in PHASES
        ),
    )
