"""Conclusions from the evidence, one module each family.

A check is a pure function from `Evidence` to findings; its module lists it in `CHECKS`,
and the module joins here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.checks import (
    batching,
    headroom,
    metrics_page,
    readiness_truth,
    representation,
    server_answers,
    timing,
    tracing,
    versions,
)
from exporter.commands.audit.finding import most_severe_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding

    Check = Callable[[Evidence], Iterable[Finding]]

FAMILIES: Final = (
    server_answers,
    readiness_truth,
    timing,
    batching,
    headroom,
    representation,
    metrics_page,
    tracing,
    versions,
)
CHECKS: Final[tuple[Check, ...]] = tuple(
    check for family in FAMILIES for check in family.CHECKS
)
"""Checks, in the order in which findings of one severity are reported."""


def conclude(evidence: Evidence) -> tuple[Finding, ...]:
    """Return all findings, most severe first. A server that is down has only that one."""
    checks = server_answers.CHECKS if evidence.no_answer else CHECKS
    return most_severe_first(f for check in checks for f in check(evidence))
