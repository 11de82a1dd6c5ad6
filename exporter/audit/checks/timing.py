"""Where a request's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, many, measure, shown_key
from exporter.audit.shares import PHASES, path_of, time_shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.evidence import Evidence

_HALF: Final = 0.5
_SLOW_NETWORK_SECONDS: Final = 0.005
_WORTH_SECONDS: Final = 0.0005
"""Shares of less than that are nobody's problem."""


def shares(evidence: Evidence) -> Iterator[Finding]:
    """The phases of every model that has enough requests."""
    for share in time_shares(evidence):
        key = (share.model, share.version)
        most = max(PHASES, key=share.ratio)
        yield Finding(
            "time-shares",
            "info",
            f"{shown_key(key)}: {share.ratio(most):.0%} of "
            f"{share.total_seconds * 1e3:.3g} ms is {most}",
            evidence=(
                measure("requests", share.requests, "", _source(share.source)),
                *(
                    measure(
                        phase,
                        None
                        if phase == "network" and share.network is None
                        else share.seconds(phase) * 1e3,
                        "ms",
                        "own probes" if phase == "network" else _source(share.source),
                    )
                    for phase in PHASES
                ),
            ),
            model=share.model,
            version=share.version,
        )


def _source(source: str) -> str:
    return "statistics, " + (
        "this window" if source == "window" else "all since the model was loaded"
    )


def data(evidence: Evidence) -> Iterator[Finding]:
    """Whether there was production traffic to judge by."""
    keys = evidence.inventory.models
    if not keys or "statistics" in evidence.problems:
        yield from _no_statistics(evidence)
        return
    traffic = {key: evidence.traffic(key) for key in keys}
    none = [key for key, found in traffic.items() if found is None]
    old = [key for key, t in traffic.items() if t and t.source == "cumulative"]
    if old:
        yield Finding(
            "no-production-traffic",
            "info",
            f"{len(old)} of {many(len(keys), 'model')} got next to no requests while we watched",
            "Their shares come from all requests since they were loaded, probes among "
            "them; audit again under traffic for what is so now.",
            (
                measure("window", evidence.window_seconds, "s", "this audit"),
                *(measure("model", shown_key(key)) for key in old[:3]),
            ),
        )
    if none:
        yield Finding(
            "not-enough-data",
            "unknown",
            f"{len(none)} of {many(len(keys), 'model')} had too few requests to judge by",
            "Audit again under traffic, with a longer --duration.",
            (
                measure("models", len(none), source="statistics"),
                *(measure("model", shown_key(key)) for key in none[:3]),
            ),
        )


def _no_statistics(evidence: Evidence) -> Iterator[Finding]:
    problem = evidence.problems.get("statistics")
    if problem:
        yield Finding(
            "statistics-unreadable",
            "warning",
            "The statistics API could not be read: where time goes is unknown",
            "If the API is restricted, put its header under `target.headers`.",
            (measure("answer", problem, source="gRPC ModelStatistics"),),
        )


def copies(evidence: Evidence) -> Iterator[Finding]:
    """Moving tensors costs more than computing with them."""
    for share in time_shares(evidence):
        moving = share.compute_input + share.compute_output
        if moving <= share.compute_infer or moving < _WORTH_SECONDS:
            continue
        key = (share.model, share.version)
        yield Finding(
            "copies-dominate",
            "warning",
            f"{shown_key(key)} spends longer on moving tensors than on inference",
            "Send tensors through shared memory, keep outputs that feed another model on "
            "the device, or send less: smaller types, fewer outputs.",
            (
                measure("compute_input", share.compute_input * 1e3, "ms", "statistics"),
                measure("compute_infer", share.compute_infer * 1e3, "ms", "statistics"),
                measure(
                    "compute_output", share.compute_output * 1e3, "ms", "statistics"
                ),
            ),
            "",
            *key,
        )


def network(evidence: Evidence) -> Iterator[Finding]:
    """The way to the server and back, from our own requests."""
    unknown = 0
    for key in evidence.inventory.models:
        path = path_of(evidence, key)
        if path is None:
            unknown += 1
            continue
        ratio = path.network / path.client_p50 if path.client_p50 else 0.0
        slow = ratio > _HALF and path.network > _SLOW_NETWORK_SECONDS
        yield Finding(
            "network-share",
            "warning" if slow else "info",
            f"{shown_key(key)}: {path.network * 1e3:.2f} ms of a probe's "
            f"{path.client_p50 * 1e3:.2f} ms is outside of the server",
            "Look at proxies, TLS and the distance between client and server."
            if slow
            else "Up to about 0.6 ms of it is the Python client of this probe.",
            (
                measure("probe p50", path.client_p50 * 1e3, "ms", "own probes"),
                measure("server p50", path.server_p50 * 1e3, "ms", "statistics"),
                measure("share", ratio * 100, "%"),
                measure("requests", path.requests, "", "own probes"),
            ),
            "",
            *key,
        )
    if unknown:
        yield Finding(
            "network-unknown",
            "info",
            f"The network's share is unknown for {many(unknown, 'model')}",
            "It needs requests of ours with no other in between: audit at a quieter "
            "time, or with a longer --duration.",
            (measure("models", unknown, source="own probes"),),
        )


CHECKS: Final = (data, shares, copies, network)
