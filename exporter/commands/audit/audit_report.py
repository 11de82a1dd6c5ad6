"""The report of an audit: one document, whose schema is published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict

from exporter.commands.audit.finding import FAILING, SEVERITIES, Finding, Severity
from exporter.commands.audit.model_checks import LISTED_CHECKS, MODEL_CHECKS
from exporter.commands.audit.model_seen import TimeShare
from exporter.commands.audit.server_checks import SERVER_CHECKS, UNREACHABLE

if TYPE_CHECKING:
    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.config.configuration import TargetSettings

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
    for model_check in MODEL_CHECKS:
        found += model_check.findings(evidence.models, is_triton=is_triton)
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def _time_shares(evidence: Evidence) -> list[TimeShare]:
    """One for each model with enough requests, those that cost the server most first."""
    shares = [model.share for model in evidence.models if model.share.server >= 0]
    return sorted(shares, key=lambda share: -share.server * share.requests)


def schema() -> str:
    """The JSON schema of a report."""
    return json.dumps(Report.model_json_schema(mode="serialization"), indent=2)
