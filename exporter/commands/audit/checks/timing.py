"""The phases of a request's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import found, many, shown_key
from exporter.commands.audit.phase_shares import PHASES, path_of, time_shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding

_HALF: Final = 0.5
_SLOW_NETWORK_SECONDS: Final = 0.005
_WORTH_SECONDS: Final = 0.0005
"""Smaller shares do not matter."""
_NAMED: Final = 3
_SOURCES: Final = {
    "window": "statistics, this window",
    "cumulative": "statistics, all since the model was loaded",
}


def shares(evidence: Evidence) -> Iterator[Finding]:
    """The phases of every model that has enough requests."""
    for share in time_shares(evidence):
        most = max(PHASES, key=share.ratio)
        source = _SOURCES[share.source]
        yield found(
            "time-shares",
            ("requests", share.requests, "", source),
            ("network", share.network and share.network * 1e3, "ms", "own probes"),
            *(
                (phase, share.seconds(phase) * 1e3, "ms", source)
                for phase in PHASES
                if phase != "network"
            ),
            key=(share.model, share.version),
            ratio=share.ratio(most),
            total=share.total_seconds * 1e3,
            most=most,
        )


def data(evidence: Evidence) -> Iterator[Finding]:
    """Production traffic to judge by, or the lack of it."""
    keys = evidence.inventory.models
    problem = evidence.problems.get("statistics")
    if problem and not evidence.lacks("statistics"):
        answer = ("answer", problem, "", "gRPC ModelStatistics")
        yield found("statistics-unreadable", answer)
    if not keys or "statistics" in evidence.problems:
        return
    traffic = {key: evidence.traffic(key) for key in keys}
    none = [key for key, seen in traffic.items() if seen is None]
    old = [key for key, t in traffic.items() if t and t.source == "cumulative"]
    models = many(len(keys), "model")
    if old:
        yield found(
            "no-production-traffic",
            ("window", evidence.window_seconds, "s", "this audit"),
            *(("model", shown_key(key)) for key in old[:_NAMED]),
            few=len(old),
            models=models,
        )
    if none:
        yield found(
            "not-enough-data",
            ("models", len(none), "", "statistics"),
            *(("model", shown_key(key)) for key in none[:_NAMED]),
            few=len(none),
            models=models,
        )


def copies(evidence: Evidence) -> Iterator[Finding]:
    """Moving tensors costs more than computing with them."""
    for share in time_shares(evidence):
        moving = share.compute_input + share.compute_output
        if moving > share.compute_infer and moving >= _WORTH_SECONDS:
            yield found(
                "copies-dominate",
                ("compute_input", share.compute_input * 1e3, "ms", "statistics"),
                ("compute_infer", share.compute_infer * 1e3, "ms", "statistics"),
                ("compute_output", share.compute_output * 1e3, "ms", "statistics"),
                key=(share.model, share.version),
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
        advice = "Look at proxies, TLS and the distance between client and server."
        yield found(
            "network-share",
            ("probe p50", path.client_p50 * 1e3, "ms", "own probes"),
            ("server p50", path.server_p50 * 1e3, "ms", "statistics"),
            ("share", ratio * 100, "%"),
            ("requests", path.requests, "", "own probes"),
            key=key,
            severity="warning" if slow else None,
            advice=advice if slow else None,
            network=path.network * 1e3,
            client=path.client_p50 * 1e3,
        )
    if unknown:
        models = many(unknown, "model")
        yield found(
            "network-unknown", ("models", unknown, "", "own probes"), models=models
        )


CHECKS: Final = (data, shares, copies, network)
