"""Do our probes stand for production's requests?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, measure, shown, shown_key
from exporter.audit.shares import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.evidence import Evidence

_ALIKE: Final = 2.0
_WORTH_SECONDS: Final = 0.0005
"""Below that the factor between two means is noise."""


def alike(evidence: Evidence) -> Iterator[Finding]:
    """Work of a probe against work of a production request.

    Waiting is left out: it depends on the load and not on what is sent.
    """
    for key in evidence.inventory.models:
        path, traffic = path_of(evidence, key), evidence.traffic(key)
        if path is None or traffic is None:
            continue
        ours, theirs = path.compute_mean, traffic.compute_seconds
        if not ours or not theirs:
            continue
        factor = max(ours / theirs, theirs / ours)
        same = factor <= _ALIKE or max(ours, theirs) < _WORTH_SECONDS
        yield Finding(
            "probe-like-production" if same else "probe-unlike-production",
            "ok" if same else "warning",
            f"{shown_key(key)}: a probe takes {ours * 1e3:.3g} ms of work, a production "
            f"request {theirs * 1e3:.3g} ms",
            ""
            if same
            else f"Give shapes and values like production's under probes[].overrides"
            f"[{shown(key[0])!r}]: until then a probe's latency says little about users'.",
            (
                measure("probe", ours * 1e3, "ms", "statistics, own requests alone"),
                measure(
                    "production", theirs * 1e3, "ms", f"statistics, {traffic.source}"
                ),
                measure("probe p50 at the client", path.client_p50 * 1e3, "ms"),
                measure("requests of ours", path.requests),
            ),
            "",
            *key,
        )


CHECKS: Final = (alike,)
