"""Checks whether the server answers, and is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import found, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding

_YES_NO: Final = {True: "yes", False: "no"}
_NAMED: Final = 3
"""Models named in one piece of evidence; the rest is counted."""
_UNLOADED: Final = frozenset({"", "unloaded"})


def unreachable(evidence: Evidence) -> Iterator[Finding]:
    """Report a server without an answer over gRPC; no other check is possible."""
    if not evidence.no_answer:
        return
    http = {True: "ready", False: "not ready", None: "no answer"}[evidence.http_ready]
    yield found(
        "server-unreachable",
        ("gRPC", evidence.no_answer, "", "ServerLive"),
        ("HTTP", http, "", "GET /v2/health/ready"),
    )


def not_ready(evidence: Evidence) -> Iterator[Finding]:
    """The server itself says that it should get no traffic."""
    inventory = evidence.inventory
    if not inventory.up or inventory.ready:
        return
    failed = [e for e in inventory.index if not e.ready and e.reason not in _UNLOADED]
    denying = sorted(inventory.denying)
    yield found(
        "server-not-ready",
        ("server ready", "no", "", "gRPC ServerReady"),
        ("failed models", len(failed), "", "RepositoryIndex"),
        *((shown_key((e.name, e.version)), e.reason) for e in failed[:_NAMED]),
        ("loaded, not ready", len(denying), "", "gRPC ModelReady"),
        *((shown_key(key), "loaded, says it is not ready") for key in denying[:_NAMED]),
        advice=" ".join(_repairs(failed=bool(failed), denying=bool(denying))),
    )


def _repairs(*, failed: bool, denying: bool) -> Iterator[str]:
    if denying:
        yield (
            "Unload and load the models that are loaded and not ready: from Triton 2.65 "
            "on, one dead backend process takes the whole server out."
        )
    if failed:
        yield "Repair or remove the models that did not load."
    if not failed and not denying:
        yield "Read the server's log: no model of this configuration explains it."
    yield (
        "With strict readiness one model is enough; --strict-readiness=false judges the "
        "server apart from its models."
    )


def protocols_differ(evidence: Evidence) -> Iterator[Finding]:
    """The two services say different things of the same server."""
    inventory = evidence.inventory
    if inventory.up and evidence.http_ready not in (None, inventory.ready):
        yield found(
            "readiness-differs",
            ("ready", _YES_NO[inventory.ready], "", "gRPC"),
            ("ready", _YES_NO[evidence.http_ready is True], "", "HTTP"),
        )


def http_silent(evidence: Evidence) -> Iterator[Finding]:
    """HTTP is configured and does not answer."""
    problem = evidence.problems.get("http")
    if problem and evidence.inventory.up and "config" not in problem:
        yield found("http-silent", ("answer", problem, "", "GET /v2/health/ready"))


CHECKS: Final = (unreachable, not_ready, protocols_differ, http_silent)
