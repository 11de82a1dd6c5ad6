"""Versions known to be bad, and settings worth a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.commands.audit.checks import tracing
from exporter.commands.audit.finding import found, many, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding


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
    applies: Callable[[Evidence], bool] = _always


KNOWN_BAD: Final = (
    KnownBad("tracing-crash", (2, 57, 0), "25.04", _traces),
    KnownBad("opentelemetry-hang", (2, 44, 0), "24.03", _opentelemetry),
    KnownBad("remote-code-execution", (2, 59, 1), "25.07"),
)


def known_bad(evidence: Evidence) -> Iterator[Finding]:
    """Every known defect of the running version; a warning where it can bite."""
    number = evidence.version
    info = evidence.inventory.info
    if evidence.other_server is not None:
        # Another server of the same protocol has defects of its own.
        return
    if number is None:
        if evidence.inventory.up:
            told = info.version if info else None
            yield found("version-unknown", ("version", told, "", "ServerMetadata"))
        return
    version = ".".join(map(str, number))
    for bad in KNOWN_BAD:
        if number >= bad.fixed_in:
            continue
        bites = bad.applies(evidence)
        yield found(
            f"version-{bad.id}",
            ("version", version, "", "ServerMetadata"),
            ("fixed in", f"{'.'.join(map(str, bad.fixed_in))} ({bad.release})"),
            ("the conditions are met", "yes" if bites else "not now"),
            severity="warning" if bites else None,
            version=version,
        )


def other_server(evidence: Evidence) -> Iterator[Finding]:
    """Report the features of Triton that another server of the protocol lacks."""
    name = evidence.other_server
    if name is None:
        return
    missing = [
        (part, problem, "", "gRPC")
        for part, problem in sorted(evidence.problems.items())
        if evidence.lacks(part)
    ]
    if missing:
        yield found("not-triton", *missing, name=shown(name))


def response_cache(evidence: Evidence) -> Iterator[Finding]:
    """Models that may answer without computing."""
    for key, spec in evidence.inventory.models.items():
        if not spec.response_cache:
            continue
        statistics = evidence.second.get(key)
        yield found(
            "response-cache-on",
            ("hits", statistics.cache_hit.count if statistics else 0, "", "statistics"),
            (
                "misses",
                statistics.cache_miss.count if statistics else 0,
                "",
                "statistics",
            ),
            key=key,
        )


def model_control(evidence: Evidence) -> Iterator[Finding]:
    """Report the model control mode, inferred from the index: Triton does not report it."""
    explicit = [
        e for e in evidence.inventory.index if not e.state or e.reason == "unloaded"
    ]
    if explicit:
        listed = ("listed, not loaded", len(explicit), "", "RepositoryIndex")
        yield found("model-control-explicit", listed)


def strict_readiness(evidence: Evidence) -> Iterator[Finding]:
    """The server calls itself ready with models that failed."""
    inventory = evidence.inventory
    failed = [
        e
        for e in inventory.index
        if e.state == "UNAVAILABLE" and e.reason != "unloaded"
    ]
    if inventory.ready and failed:
        yield found(
            "readiness-not-strict",
            ("failed models", len(failed), "", "RepositoryIndex"),
            models=many(len(failed), "model"),
        )


CHECKS: Final = (
    known_bad,
    other_server,
    response_cache,
    model_control,
    strict_readiness,
)
