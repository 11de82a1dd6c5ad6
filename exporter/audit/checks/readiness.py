"""Readiness truth: what Triton calls ready against a tensor really sent through."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, many, measure, shown, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.audit.evidence import Evidence, Probed
    from exporter.inventory import ModelKey

_DEAD_STUB: Final = re.compile(
    r"stub process|stub_process|is not healthy", re.IGNORECASE
)
_SOURCE: Final = "synthetic probe"
_FEW_FAILURES: Final = 0.001
_MANY_FAILURES: Final = 0.5


def _by_model(evidence: Evidence) -> dict[ModelKey, list[Probed]]:
    grouped: dict[ModelKey, list[Probed]] = defaultdict(list)
    for probed in evidence.probes:
        grouped[probed.target.key].append(probed)
    return grouped


def _failures(lines: Sequence[Probed]) -> list[str]:
    return [
        f"{line.target.protocol}: {v.outcome}: {v.detail}"
        for line in lines
        for v in line.verdicts
        if v.outcome != "ok"
    ]


def _share(lines: Sequence[Probed]) -> tuple[int, int]:
    verdicts = [v for line in lines for v in line.verdicts]
    return sum(v.outcome == "ok" for v in verdicts), len(verdicts)


def _misfit(lines: Sequence[Probed]) -> bool:
    return all(v.outcome in ("ok", "invalid") for line in lines for v in line.verdicts)


def answering(evidence: Evidence) -> Iterator[Finding]:
    """How many models really answered."""
    grouped = _by_model(evidence)
    well = sum(ok == asked for ok, asked in map(_share, grouped.values()))
    if grouped and well:
        yield Finding(
            "models-answer",
            "ok",
            f"A tensor went through {well} of {many(len(grouped), 'model')} that were asked",
            evidence=(
                measure("models ready", len(evidence.inventory.models), source="index"),
                measure("models asked", len(grouped), source=_SOURCE),
                measure("answered every time", well, source=_SOURCE),
            ),
        )


def failing(evidence: Evidence) -> Iterator[Finding]:
    """Ready by Triton's word, while no request gets through."""
    for key, lines in _by_model(evidence).items():
        ok, asked = _share(lines)
        if ok or _misfit(lines):
            continue
        failures = _failures(lines)
        dead = any(_DEAD_STUB.search(text) for text in failures)
        yield Finding(
            "dead-backend-stub" if dead else "ready-but-failing",
            "critical",
            f"{shown_key(key)} is called ready, and every request to it fails",
            "The backend process of the model is gone. Unload the model and load it at "
            "once, though it stays UNLOADING meanwhile (Triton 2.51): a load alone answers "
            "200 and repairs nothing. Failing that, restart Triton."
            if dead
            else "Take it out of traffic and read the server's log for the error. Unload "
            "and load it if the backend died; check its dependencies if outputs are "
            "empty or NaN.",
            (
                measure("ready", "yes", source="RepositoryIndex"),
                measure("answered", ok, f"of {many(asked, 'request')}", _SOURCE),
                measure("error", failures[0], source=_SOURCE),
            ),
            _reference(lines, dead=dead),
            *key,
        )


def _reference(lines: Sequence[Probed], *, dead: bool) -> str:
    if dead:
        return "server#8604"
    spoilt = any(v.outcome == "bad_output" for line in lines for v in line.verdicts)
    return "server#7053" if spoilt else "server#7164"


def flaky(evidence: Evidence) -> Iterator[Finding]:
    """Some requests get through and some do not."""
    for key, lines in _by_model(evidence).items():
        ok, asked = _share(lines)
        if not ok or ok == asked or _misfit(lines):
            continue
        one_way = [line for line in lines if not _share([line])[0]]
        where = one_way[0].target.protocol if one_way else ""
        yield Finding(
            "fails-over-one-protocol" if one_way else "fails-sometimes",
            "warning",
            f"{shown_key(key)} answers {ok} of {asked} requests"
            + (f" and none over {where}" if one_way else ""),
            "Compare the two services' settings and what stands in front of them."
            if one_way
            else "Look for one bad instance, a queue limit or a timeout near the model's "
            "own latency.",
            (
                measure("answered", ok, f"of {many(asked, 'request')}", _SOURCE),
                measure("error", _failures(lines)[0], source=_SOURCE),
            ),
            "",
            *key,
        )


def production(evidence: Evidence) -> Iterator[Finding]:
    """Requests of others that failed while we watched."""
    for key in evidence.inventory.models:
        window = evidence.window(key)
        if window is None or not window.fail.count:
            continue
        failed, all_ = window.fail.count, window.fail.count + window.success.count
        ratio = failed / all_
        if ratio < _FEW_FAILURES:
            continue
        yield Finding(
            "production-fails",
            "critical" if ratio >= _MANY_FAILURES else "warning",
            f"{shown_key(key)}: {ratio:.0%} of production's requests failed",
            "Read the server's log for the error. There may be more: an error that a "
            "Python model raises itself is counted as success (Triton 2.51).",
            (
                measure("failed", failed, f"of {many(all_, 'request')}", "statistics"),
                measure("window", evidence.window_seconds, "s", "this audit"),
            ),
            "",
            *key,
        )


def misfit(evidence: Evidence) -> Iterator[Finding]:
    """Our made-up tensor is refused: that says nothing about the model."""
    for key, lines in _by_model(evidence).items():
        failures = _failures(lines)
        if failures and _misfit(lines):
            yield Finding(
                "probe-does-not-fit",
                "unknown",
                f"{shown_key(key)} refuses the made-up tensor; whether it works is unknown",
                f"Give its inputs under probes[].overrides[{shown(key[0])!r}]: shape, "
                "range or values.",
                (measure("error", failures[0], source=_SOURCE),),
                "",
                *key,
            )


def unreadable(evidence: Evidence) -> Iterator[Finding]:
    """Listed as ready, and nobody can ask for its signature."""
    for key, reason in evidence.unreadable.items():
        yield Finding(
            "ready-but-unreadable",
            "critical",
            f"{shown_key(key)} is listed as ready, but its metadata is refused",
            "Unload and load the model; if it was just being replaced, look again.",
            (measure("error", reason, source="gRPC ModelMetadata"),),
            "server#7588",
            *key,
        )


def not_loaded(evidence: Evidence) -> Iterator[Finding]:
    """Listed, but not ready, with Triton's own reason."""
    unloaded = 0
    for entry in evidence.inventory.index:
        if entry.ready:
            continue
        if not entry.state or entry.reason == "unloaded":
            unloaded += 1
            continue
        yield Finding(
            "model-not-ready",
            "warning",
            f"{shown_key((entry.name, entry.version))} is {shown(entry.state)}",
            "Repair what the reason names and load it again, or remove it from the "
            "repository.",
            (measure("reason", entry.reason or None, source="RepositoryIndex"),),
            "",
            entry.name,
            entry.version,
        )
    if unloaded:
        yield Finding(
            "models-unloaded",
            "info",
            f"Not loaded of what the repository lists: {many(unloaded, 'model')}",
            evidence=(measure("not loaded", unloaded, source="RepositoryIndex"),),
        )


def unasked(evidence: Evidence) -> Iterator[Finding]:
    """What there was no time, or no probe, for."""
    if evidence.unread or evidence.not_asked:
        yield Finding(
            "not-asked",
            "unknown",
            "Not every ready model could be asked in the time given",
            "Give a longer --duration, or raise the probe's max_requests_per_second.",
            (
                measure("not read", evidence.unread, "models", "RepositoryIndex"),
                measure("not asked", evidence.not_asked, "ways", _SOURCE),
            ),
        )
    elif evidence.inventory.models and not evidence.probes:
        yield Finding(
            "no-probe",
            "unknown",
            "No synthetic probe is configured: readiness is Triton's word alone",
            "Leave `probes` out of the config for the default, or add one of kind "
            "synthetic.",
        )
    elif not evidence.inventory.models:
        yield Finding(
            "no-models",
            "unknown",
            "No ready model matches the config: there is nothing to judge",
            "Load a model, or correct `models.include` and `models.exclude`.",
            (measure("listed", len(evidence.inventory.index), source="index"),),
        )


CHECKS: Final = (
    failing,
    unreadable,
    not_loaded,
    production,
    flaky,
    misfit,
    unasked,
    answering,
)
