"""Versions known to be bad, as data with their sources, and settings worth a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.audit.checks import tracing
from exporter.audit.finding import Finding, many, measure, shown_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.audit.evidence import Evidence


def _traces(evidence: Evidence) -> bool:
    return bool(tracing.traced(evidence))


def _opentelemetry(evidence: Evidence) -> bool:
    return any(map(tracing.opentelemetry, evidence.trace_settings.values()))


def _always(_: Evidence) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One defect: every version below `fixed_in` has it; it bites where `applies`."""

    id: str
    fixed_in: tuple[int, int, int]
    release: str
    """The container release that carries `fixed_in`."""
    what: str
    advice: str
    reference: str
    applies: Callable[[Evidence], bool] = _always


KNOWN_BAD: Final = (
    KnownBad(
        "tracing-crash",
        (2, 57, 0),
        "25.04",
        "now and then a traced request crashes the server, or hangs it while it calls "
        "itself ready",
        "Upgrade; until then trace to files, and one or two requests a second: every "
        "traced one is a risk, at any rate. The fix (server#8144) is taken for this "
        "crash's by its title; no thread says so.",
        "server#7795",
        _traces,
    ),
    KnownBad(
        "opentelemetry-hang",
        (2, 44, 0),
        "24.03",
        "OpenTelemetry tracing with level OFF hangs requests and crashes the server",
        "Start with --trace-config level=TIMESTAMPS, or upgrade.",
        "server#6967",
        _opentelemetry,
    ),
    KnownBad(
        "remote-code-execution",
        (2, 59, 1),
        "25.07",
        "who reaches its HTTP port may run code in it (CVE-2025-23319, -23310, -23311)",
        "Upgrade; until then let nobody untrusted reach the server and restrict the "
        "shared-memory API (--http-restricted-api, --grpc-restricted-protocol). Later "
        "bulletins exist: this table is not complete.",
        "nvidia.custhelp.com/app/answers/detail/a_id/5687",
    ),
)


def known_bad(evidence: Evidence) -> Iterator[Finding]:
    """Every known defect of the running version; a warning where it can bite."""
    version = evidence.version
    info = evidence.inventory.info
    if version is None:
        if evidence.inventory.up:
            yield Finding(
                "version-unknown",
                "unknown",
                "The server tells no version that can be read",
                "Known defects cannot be checked against it.",
                (
                    measure(
                        "version", info.version if info else None, "", "ServerMetadata"
                    ),
                ),
            )
        return
    for bad in KNOWN_BAD:
        if version >= bad.fixed_in:
            continue
        bites = bad.applies(evidence)
        yield Finding(
            f"version-{bad.id}",
            "warning" if bites else "info",
            f"Triton {'.'.join(map(str, version))}: {bad.what}",
            bad.advice,
            (
                measure("version", ".".join(map(str, version)), "", "ServerMetadata"),
                measure(
                    "fixed in", f"{'.'.join(map(str, bad.fixed_in))} ({bad.release})"
                ),
                measure("the conditions are met", "yes" if bites else "not now"),
            ),
            bad.reference,
        )


def response_cache(evidence: Evidence) -> Iterator[Finding]:
    """Models that may answer without computing."""
    for key, spec in evidence.inventory.models.items():
        if not spec.response_cache:
            continue
        statistics = evidence.second.get(key)
        hits = statistics.cache_hit.count if statistics else 0
        misses = statistics.cache_miss.count if statistics else 0
        yield Finding(
            "response-cache-on",
            "info",
            f"{shown_key(key)} may answer from the response cache",
            "A golden probe with fixed inputs proves nothing then: a cached answer looks "
            "right while the backend is broken. Request statistics include the hits.",
            (
                measure("hits", hits, "", "statistics"),
                measure("misses", misses, "", "statistics"),
            ),
            "",
            *key,
        )


def model_control(evidence: Evidence) -> Iterator[Finding]:
    """Triton tells its control mode to nobody; the index may give it away."""
    explicit = [
        e for e in evidence.inventory.index if not e.state or e.reason == "unloaded"
    ]
    if explicit:
        yield Finding(
            "model-control-explicit",
            "info",
            "Models seem to be loaded on request (--model-control-mode=explicit)",
            "After a restart only --load-model names are back. Whoever reaches the port "
            "can load and unload: restrict the model-repository API.",
            (measure("listed, not loaded", len(explicit), "", "RepositoryIndex"),),
        )


def strict_readiness(evidence: Evidence) -> Iterator[Finding]:
    """The server calls itself ready with models that failed."""
    inventory = evidence.inventory
    failed = [
        e
        for e in inventory.index
        if e.state == "UNAVAILABLE" and e.reason != "unloaded"
    ]
    if inventory.ready and failed:
        yield Finding(
            "readiness-not-strict",
            "info",
            f"The server calls itself ready with {many(len(failed), 'model')} that failed",
            "--strict-readiness seems to be off: check each model's readiness, or a "
            "probe, and not the server's.",
            (measure("failed models", len(failed), "", "RepositoryIndex"),),
            "server#7588",
        )


CHECKS: Final = (known_bad, response_cache, model_control, strict_readiness)
