"""Checks whether our probes represent production's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import found, shown
from exporter.commands.audit.phase_shares import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding

_ALIKE: Final = 3.0
_WORTH_SECONDS: Final = 0.001
"""Below that the factor between two means is noise."""


def alike(evidence: Evidence) -> Iterator[Finding]:
    """Work of a probe against work of a production request.

    Waiting is left out: it depends on the load and not on what is sent.
    """
    for key in evidence.inventory.models:
        path, traffic = path_of(evidence, key), evidence.traffic(key)
        if path is None or traffic is None:
            continue
        theirs = traffic.compute_seconds
        # One request held up by a busy host moves a mean and not a median, and
        # production is known by its mean alone: whichever is nearer decides.
        factor, ours = min(
            (_factor(ours, theirs), ours)
            for ours in (path.compute_mean, path.compute_p50)
        )
        same = factor <= _ALIKE or max(ours, theirs) < _WORTH_SECONDS
        yield found(
            "probe-like-production" if same else "probe-unlike-production",
            ("probe", ours * 1e3, "ms", "statistics, own requests alone"),
            ("production", theirs * 1e3, "ms", f"statistics, {traffic.source}"),
            ("probe p50 at the client", path.client_p50 * 1e3, "ms"),
            ("requests of ours", path.requests),
            key=key,
            ours=ours * 1e3,
            theirs=theirs * 1e3,
            name=shown(key[0]),
        )


def _factor(one: float, other: float) -> float:
    return max(one, other) / max(min(one, other), 1e-9)


CHECKS: Final = (alike,)
