"""Does the server answer, and does it call itself ready?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, measure, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.evidence import Evidence

_YES_NO: Final = {True: "yes", False: "no"}
_NAMED: Final = 3
"""Models named in one piece of evidence; the rest is counted."""


def unreachable(evidence: Evidence) -> Iterator[Finding]:
    """No answer over gRPC: nothing else can be said."""
    if not evidence.no_answer:
        return
    http = {True: "ready", False: "not ready", None: "no answer"}[evidence.http_ready]
    yield Finding(
        "server-unreachable",
        "critical",
        "The server does not answer over gRPC; nothing else could be looked at",
        "Check the address under `target` and that the server runs. If HTTP still "
        "answers, the gRPC service alone is off, blocked or hung.",
        (
            measure("gRPC", evidence.no_answer, source="ServerLive"),
            measure("HTTP", http, source="GET /v2/health/ready"),
        ),
    )


def not_ready(evidence: Evidence) -> Iterator[Finding]:
    """The server itself says that it should get no traffic."""
    inventory = evidence.inventory
    if not inventory.up or inventory.ready:
        return
    failed = [e for e in inventory.index if not e.ready and e.reason not in _UNLOADED]
    yield Finding(
        "server-not-ready",
        "critical",
        "The server says that it is not ready: load balancers take it out",
        "Repair or remove the models that did not load: with strict readiness one of "
        "them is enough. --strict-readiness=false trades that for a check that says less.",
        (
            measure("server ready", "no", source="gRPC ServerReady"),
            measure("failed models", len(failed), source="RepositoryIndex"),
            *(
                measure(shown_key((e.name, e.version)), e.reason)
                for e in failed[:_NAMED]
            ),
        ),
    )


_UNLOADED: Final = frozenset({"", "unloaded"})


def protocols_differ(evidence: Evidence) -> Iterator[Finding]:
    """The two services say different things of the same server."""
    inventory = evidence.inventory
    if not inventory.up or evidence.http_ready in (None, inventory.ready):
        return
    yield Finding(
        "readiness-differs",
        "warning",
        "gRPC and HTTP disagree on whether the server is ready",
        "Look again: it may just have changed. If it stays, a proxy answers for one of "
        "them.",
        (
            measure("ready", _YES_NO[inventory.ready], source="gRPC"),
            measure("ready", _YES_NO[evidence.http_ready is True], source="HTTP"),
        ),
    )


def http_silent(evidence: Evidence) -> Iterator[Finding]:
    """HTTP is configured and does not answer."""
    problem = evidence.problems.get("http")
    if not problem or not evidence.inventory.up or "config" in problem:
        return
    yield Finding(
        "http-silent",
        "warning",
        "The HTTP service does not answer while gRPC does",
        "Start Triton with HTTP, correct `target.http`, or set it to null if HTTP is off "
        "on purpose.",
        (measure("answer", problem, source="GET /v2/health/ready"),),
    )


CHECKS: Final = (unreachable, not_ready, protocols_differ, http_silent)
