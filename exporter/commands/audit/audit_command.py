"""The command `tritonwatch audit`: inspect, conclude, write for people or programs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict

from exporter.commands.audit.finding import (
    FAILING,
    SEVERITIES,
    Finding,
    Severity,
    shown,
    shown_key,
)
from exporter.commands.audit.gather import gather
from exporter.commands.audit.model_checks import LISTED_CHECKS, MODEL_CHECKS
from exporter.commands.audit.model_seen import TimeShare
from exporter.commands.audit.server_checks import SERVER_CHECKS, UNREACHABLE
from exporter.config import configuration, connect
from exporter.errors import ConfigError
from pages import page_html, page_text
from pages.blocks import (
    Document,
    Facts,
    Fold,
    Paragraph,
    Section,
    Shares,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Measure
    from exporter.config.configuration import TargetSettings
    from pages.blocks import Block, Tone

SCHEMA_VERSION: Final = 1


class Report(BaseModel):
    """One audit. Times of day are ISO 8601 in UTC, durations seconds."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    schema_version: Literal[1] = SCHEMA_VERSION
    """Rises when a field changes its meaning or goes."""
    tritonwatch_version: str
    started_at: str
    """Start of the audit."""
    seconds: float
    """Duration of the audit."""
    window_seconds: float
    """Time for which production was observed without any request of our own."""
    grpc: str
    """Address of the gRPC service."""
    http: str | None
    """Address of the HTTP service, null where the config has none."""
    metrics: str | None
    """Address of Triton's metrics page, null where the config has none."""
    server_name: str | None
    """"Triton", or the name of another server; null if it did not answer."""
    server_version: str | None
    """The server's version; null if it did not answer."""
    models: int
    """Ready model versions that could be read."""
    verdict: Severity
    """The most severe of all findings."""
    counts: dict[Severity, int]
    """Findings by severity."""
    time_shares: tuple[TimeShare, ...]
    """Mean seconds of a request by phase, for each model; the costliest model first."""
    findings: tuple[Finding, ...]
    """The findings, most severe first."""

    @property
    def failed(self) -> bool:
        """Return whether anything is at warning or above."""
        return any(finding.severity in FAILING for finding in self.findings)


def report_of(
    evidence: Evidence,
    target: TargetSettings,
    *,
    started_at: str,
    seconds: float,
    tritonwatch_version: str,
) -> Report:
    """Return the report of the evidence."""
    findings = conclude(evidence)
    info = evidence.inventory.info
    counts: dict[Severity, int] = {
        severity: sum(f.severity == severity for f in findings)
        for severity in SEVERITIES
    }
    return Report(
        tritonwatch_version=tritonwatch_version,
        started_at=started_at,
        seconds=seconds,
        window_seconds=evidence.window_seconds,
        grpc=target.grpc,
        http=target.http,
        metrics=target.metrics,
        server_name=info.product if info else None,
        server_version=info.version if info else None,
        models=len(evidence.inventory.models),
        verdict=findings[0].severity if findings else "ok",
        counts=counts,
        time_shares=tuple(_time_shares(evidence)),
        findings=findings,
    )


def conclude(evidence: Evidence) -> tuple[Finding, ...]:
    """Return all findings, most severe first. A server that is down has only that one."""
    is_triton = evidence.info.is_triton
    if evidence.no_answer:
        return tuple(UNREACHABLE.findings([evidence], is_triton=is_triton))
    found: list[Finding] = []
    for check in SERVER_CHECKS:
        found += check.findings([evidence], is_triton=is_triton)
    for listed_check in LISTED_CHECKS:
        found += listed_check.findings(evidence.listed, is_triton=is_triton)
    # Of many alike the page shows the first ones.
    busiest = sorted(evidence.models, key=lambda m: -m.busy_seconds)
    for model_check in MODEL_CHECKS:
        found += model_check.findings(busiest, is_triton=is_triton)
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def _time_shares(evidence: Evidence) -> list[TimeShare]:
    """One for each model with enough requests, those that cost the server most first."""
    shares = [model.share for model in evidence.models if model.share.server >= 0]
    return sorted(shares, key=lambda share: -share.server * share.requests)


WIDTH: Final = 100
"""Columns of the text."""
MOST_OF_A_KIND: Final = 3
"""Findings of one id that are shown in full; the rest is counted, JSON has them all."""
MOST_SHARES: Final = 50
CAVEAT: Final = (
    "Means hide tails. Requests of other probes, a running sidecar's among them, count "
    "as production here. Network is the round trip of an empty call from this machine."
)
_TONES: Final[dict[Severity, Tone]] = {
    "critical": "bad",
    "warning": "note",
    "unknown": "doubt",
    "info": "info",
    "ok": "good",
}


def document(report: Report) -> Document:
    """Return the report: the worst findings first, then where the time goes."""
    server = (report.server_name, report.server_version)
    name = " ".join(shown(part) for part in server if part)
    about = (
        f"{name or 'no answer'} · {report.models:,} model{'s' * (report.models != 1)} · "
        f"{report.started_at} · {report.seconds:.1f} s, of which "
        f"{report.window_seconds:.1f} s of production · "
        f"tritonwatch {report.tritonwatch_version}"
    )
    return Document(f"tritonwatch audit of {report.grpc}", _blocks(report), (about,))


def _blocks(report: Report) -> Iterator[Block]:
    counts = ", ".join(f"{n} {severity}" for severity, n in report.counts.items() if n)
    said = f"verdict: {report.verdict} ({counts or 'no findings'})"
    yield Verdict(_TONES[report.verdict], said)
    for (severity, kind), group in groupby(
        report.findings, key=lambda finding: (finding.severity, finding.id)
    ):
        findings = list(group)
        for finding in findings[:MOST_OF_A_KIND]:
            yield Fold(
                finding.title,
                _finding(finding),
                tone=_TONES[severity],
                badge=severity,
                label=kind,
                is_open=severity not in ("info", "ok"),
            )
        yield from _more(len(findings) - MOST_OF_A_KIND, f"of {kind}")
    if report.time_shares:
        yield Section("Where a request's time goes", _time(report.time_shares))


def _more(count: int, of: str) -> Iterator[Block]:
    if count > 0:
        yield Paragraph(f"… and {count:,} more {of} (JSON has all)", soft=True)


def _finding(finding: Finding) -> Iterator[Block]:
    if finding.evidence:
        yield Facts([(m.name, _measure(m)) for m in finding.evidence], in_line=True)
    if finding.advice:
        yield Paragraph(finding.advice)
    if finding.reference:
        yield Paragraph(f"see {finding.reference}", soft=True)


def _measure(item: Measure) -> str:
    value = item.value
    if isinstance(value, int | float):
        # Four digits, no exponents where they can be avoided.
        is_whole = isinstance(value, int) or abs(value) >= 1e4  # noqa: PLR2004
        value = f"{value:,.0f}" if is_whole else f"{value:.4g}"
    unit = f" {item.unit}" if item.unit and item.value is not None else ""
    source = f" ({item.source})" if item.source else ""
    return f"{'unknown' if value is None else value}{unit}{source}"


def _time(shares: Sequence[TimeShare]) -> Iterator[Block]:
    for share in shares[:MOST_SHARES]:
        phases = {
            "network": share.network or 0.0,
            "queue": share.queue,
            "input": share.compute_input,
            "inference": share.compute_infer,
            "output": share.compute_output,
            "other": share.other,
        }
        total = sum(phases.values())
        since = "" if share.source == "window" else " since load"
        yield Shares(
            shown_key((share.model, share.version)),
            f"{total * 1e3:.3f} ms",
            {name: seconds / (total or 1.0) for name, seconds in phases.items()},
            f"{share.requests:,} requests{since}",
        )
    yield from _more(len(shares) - MOST_SHARES, "models")
    yield Paragraph(CAVEAT, soft=True)


Format = Literal["text", "json", "html"]
LEAST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 600.0


def audit(
    config: Path | None, duration_seconds: float, report_step: Callable[[str], None]
) -> Report:
    """Inspect the configured server once; without one that of localhost.

    Raises:
        ConfigError: the file or the duration is wrong, or a TLS file cannot be read.
    """
    if not LEAST_SECONDS <= duration_seconds <= MOST_SECONDS:
        wanted = f"want {LEAST_SECONDS:g} to {MOST_SECONDS:g} s"
        raise ConfigError("--duration", [f"found {duration_seconds:g}; {wanted}"])
    loaded = configuration.load(config)
    target = connect.triton(loaded, "audit")
    started_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = time.monotonic()
    evidence = gather(loaded, duration_seconds, report_step)
    return report_of(
        evidence,
        target,
        started_at=started_at,
        seconds=time.monotonic() - began,
        tritonwatch_version=version("tritonwatch"),
    )


def rendered(report: Report, form: Format) -> str:
    """The report in one of the formats."""
    match form:
        case "json":
            return report.model_dump_json(indent=2) + "\n"
        case "html":
            return page_html.render(document(report))
        case "text":
            return page_text.render(document(report), WIDTH)
