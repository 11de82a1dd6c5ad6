"""Compares the readiness that Triton reports with real inference requests."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from exporter.access.probe_base import UNJUDGED
from exporter.commands.audit.finding import found, many, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import Evidence, Probed
    from exporter.commands.audit.finding import Finding

_DEAD_STUB: Final = re.compile(
    r"stub process|stub_process|is not healthy", re.IGNORECASE
)
_SOURCE: Final = "synthetic probe"
_FEW_FAILURES: Final = 0.001
_MANY_FAILURES: Final = 0.5


def _by_model(evidence: Evidence) -> dict[ModelKey, list[Probed]]:
    grouped: dict[ModelKey, list[Probed]] = defaultdict(list)
    for probed in evidence.probes:
        judged = tuple(v for v in probed.verdicts if v.outcome not in UNJUDGED)
        if judged:
            grouped[probed.target.key].append(replace(probed, verdicts=judged))
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
    """Yield how many models really answered."""
    grouped = _by_model(evidence)
    well = sum(ok == asked for ok, asked in map(_share, grouped.values()))
    if grouped and well:
        yield found(
            "models-answer",
            ("models ready", len(evidence.inventory.models), "", "index"),
            ("models asked", len(grouped), "", _SOURCE),
            ("answered every time", well, "", _SOURCE),
            well=well,
            models=many(len(grouped), "model"),
        )


def failing(evidence: Evidence) -> Iterator[Finding]:
    """Ready by Triton's word, while no request gets through."""
    for key, lines in _by_model(evidence).items():
        ok, asked = _share(lines)
        if ok or _misfit(lines):
            continue
        failures = _failures(lines)
        dead = any(_DEAD_STUB.search(text) for text in failures)
        spoilt = any(v.outcome == "bad_output" for line in lines for v in line.verdicts)
        denies = key in evidence.inventory.denying
        yield found(
            "dead-backend-stub" if dead else "ready-but-failing",
            ("ready", "yes", "", "RepositoryIndex"),
            (
                "ready when asked itself",
                "no" if denies else "yes",
                "",
                "gRPC ModelReady",
            ),
            ("answered", ok, f"of {many(asked, 'request')}", _SOURCE),
            ("error", failures[0], "", _SOURCE),
            key=key,
            reference="server#7053" if spoilt and not dead else None,
        )


def flaky(evidence: Evidence) -> Iterator[Finding]:
    """Some requests get through and some do not."""
    for key, lines in _by_model(evidence).items():
        ok, asked = _share(lines)
        if not ok or ok == asked or _misfit(lines):
            continue
        one_way = [line for line in lines if not _share([line])[0]]
        yield found(
            "fails-over-one-protocol" if one_way else "fails-sometimes",
            ("answered", ok, f"of {many(asked, 'request')}", _SOURCE),
            ("error", _failures(lines)[0], "", _SOURCE),
            key=key,
            ok=ok,
            asked=asked,
            where=one_way[0].target.protocol if one_way else "",
        )


def production(evidence: Evidence) -> Iterator[Finding]:
    """Requests of others that failed while we watched."""
    for key in evidence.inventory.models:
        window = evidence.window(key)
        if window is None or not window.fail.count:
            continue
        failed, all_ = window.fail.count, window.fail.count + window.success.count
        ratio = failed / all_
        if ratio >= _FEW_FAILURES:
            yield found(
                "production-fails",
                ("failed", failed, f"of {many(all_, 'request')}", "statistics"),
                ("window", evidence.window_seconds, "s", "this audit"),
                key=key,
                severity="critical" if ratio >= _MANY_FAILURES else "warning",
                ratio=ratio,
            )


def misfit(evidence: Evidence) -> Iterator[Finding]:
    """Our made-up tensor is refused: that says nothing about the model."""
    for key, lines in _by_model(evidence).items():
        failures = _failures(lines)
        if failures and _misfit(lines):
            error = ("error", failures[0], "", _SOURCE)
            yield found("probe-does-not-fit", error, key=key, name=shown(key[0]))


def unreadable(evidence: Evidence) -> Iterator[Finding]:
    """Listed as ready, and its signature cannot be read."""
    for key, reason in evidence.unreadable.items():
        error = ("error", reason, "", "gRPC ModelMetadata")
        yield found("ready-but-unreadable", error, key=key)


def not_loaded(evidence: Evidence) -> Iterator[Finding]:
    """Listed, but not ready, with Triton's own reason."""
    unloaded = 0
    for entry in evidence.inventory.index:
        if entry.ready:
            continue
        if not entry.state or entry.reason == "unloaded":
            unloaded += 1
            continue
        yield found(
            "model-not-ready",
            ("reason", entry.reason or None, "", "RepositoryIndex"),
            key=(entry.name, entry.version),
            state=shown(entry.state),
        )
    if unloaded:
        yield found(
            "models-unloaded",
            ("not loaded", unloaded, "", "RepositoryIndex"),
            models=many(unloaded, "model"),
        )


def unasked(evidence: Evidence) -> Iterator[Finding]:
    """Report models without a probe, or without a request for lack of time."""
    if evidence.unread or evidence.not_asked:
        yield found(
            "not-asked",
            ("not read", evidence.unread, "models", "RepositoryIndex"),
            ("not asked", evidence.not_asked, "ways", _SOURCE),
        )
    elif evidence.inventory.models and not evidence.probes:
        yield found("no-probe")
    elif not evidence.inventory.models:
        yield found("no-models", ("listed", len(evidence.inventory.index), "", "index"))


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
