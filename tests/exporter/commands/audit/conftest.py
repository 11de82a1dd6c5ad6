"""Audits of a FakeTriton, and evidence made by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from waiting import patience

from exporter.commands.audit.audit_command import Report, report_of
from exporter.commands.audit.gather import gather
from exporter.config.configuration import Config


@dataclass(frozen=True)
class Seen:
    """What one audit saw and said."""

    evidence: object
    report: Report
    told: tuple[str, ...]
    seconds: float

    def ids(self, severity=None):
        """Ids of all findings, or of those of one severity."""
        return {f.id for f in self.report.findings if severity in (None, f.severity)}

    def one(self, finding_id):
        """The only finding of that id."""
        (found,) = [f for f in self.report.findings if f.id == finding_id]
        return found

    def all(self, finding_id):
        return [f for f in self.report.findings if f.id == finding_id]


@pytest.fixture
def config():
    """A configuration for a FakeTriton that probes fast."""

    def make(fake, *, probe=None, target=None, **changes):
        probe = {
            "kind": "synthetic",
            "timeout_seconds": patience(0.5),
            "max_requests_per_second": 100,
            **(probe or {}),
        }
        return Config.model_validate(
            {
                "target": {
                    "grpc": fake.grpc,
                    "http": fake.http,
                    "metrics": fake.metrics,
                    **(target or {}),
                },
                "probes": [probe],
                **changes,
            }
        )

    return make


@pytest.fixture
def audit(config):
    """One audit: `audit(fake, seconds)`, everything else as in `config`.

    It has more seconds than these on a busy machine.
    """

    def run(fake, seconds=1.0, **changes):
        seconds = patience(seconds)
        made = config(fake, **changes)
        told = []
        evidence = gather(made, seconds, told.append)
        report = report_of(
            evidence,
            made.target,
            started_at="2026-11-21T12:00:00Z",
            seconds=seconds,
            tritonwatch_version="0",
        )
        return Seen(evidence, report, tuple(told), seconds)

    return run
