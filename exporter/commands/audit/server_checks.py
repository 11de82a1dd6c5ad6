"""The findings about the server as a whole, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.audit_evidence import INFERENCES, SUMMARIES
from exporter.commands.audit.finding import Check, measure, shown_key
from exporter.triton.upstream import GPU_ENERGY, GPU_POWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import Evidence, Part
    from exporter.commands.audit.finding import Measure


def _problem(part: Part, source: str) -> Callable[[Evidence], Iterable[Measure]]:
    """Evidence read from the server's answers."""
    return lambda it: [measure("answer", it.problems[part], "", source)]


def _names(keys: Iterable[ModelKey]) -> str:
    return ", ".join(map(shown_key, sorted(keys))) or "none"


def _version(fixed_in: str) -> Callable[[Evidence], Iterable[Measure]]:
    """Evidence of a defect: the version, and the one that has it no more."""
    return lambda it: [
        measure("version", it.info.version, "", "ServerMetadata"),
        measure("fixed in", fixed_in),
    ]


UNREACHABLE: Final[Check[Evidence]] = Check(
    id="server-unreachable",
    severity="critical",
    holds=lambda it: it.no_answer != "",
    title="The server does not answer over gRPC; nothing else could be inspected",
    evidence=lambda it: [
        measure("gRPC", it.no_answer, "", "ServerLive"),
        measure("HTTP", it.http, "", "GET /v2/health/ready"),
    ],
    advice="Check the address under `target` and that the server runs. If HTTP still "
    "answers, the gRPC service alone is off, blocked or hung.",
)

SERVER_CHECKS: Final[tuple[Check[Evidence], ...]] = (
    Check(
        id="server-not-ready",
        severity="critical",
        holds=lambda it: it.inventory.up and not it.inventory.ready,
        title="The server does not report that it is ready: load balancers take it out",
        evidence=lambda it: [
            measure("HTTP", it.http, "", "GET /v2/health/ready"),
            measure("failed models", it.broken, "", "RepositoryIndex"),
            measure("loaded, not ready", len(it.inventory.denying), "", "ModelReady"),
            measure("which", _names(it.inventory.denying)),
        ],
        advice="Repair or remove models that failed to load. Unload and load models "
        "that are loaded but not ready: from Triton 2.65 on, one dead backend "
        "process makes the whole server not ready. If there are neither, read "
        "the server's log. With strict readiness one model is enough to make "
        "the server not ready; --strict-readiness=false makes readiness "
        "independent of the models.",
        advice_elsewhere="Repair or remove models that failed to load. Unload and load models "
        "that are loaded but not ready. If there are neither, read the server's log.",
    ),
    Check(
        id="http-silent",
        severity="warning",
        holds=lambda it: it.failing("http") != "",
        title="The HTTP service does not answer while gRPC does",
        evidence=_problem("http", "GET /v2/health/ready"),
        advice="Start the server with HTTP, correct `target.http`, or set it to null if HTTP "
        "is off on purpose.",
    ),
    Check(
        id="readiness-not-strict",
        severity="info",
        holds=lambda it: it.inventory.ready and it.broken > 0,
        title="The server is ready although models failed to load",
        evidence=lambda it: [
            measure("failed models", it.broken, "", "RepositoryIndex")
        ],
        advice="--strict-readiness seems to be off: check each model's readiness, or a "
        "probe, and not the server's.",
        advice_elsewhere="Check each model's readiness, or a probe, and not the server's.",
        reference="server#7588",
    ),
    # What could not be checked.
    Check(
        id="not-asked",
        severity="unknown",
        holds=lambda it: it.unread + it.not_asked > 0 or it.asked < len(it.models),
        title="Not every ready model was probed: for the others only the server's "
        "word is known",
        evidence=lambda it: [
            measure("ready, asked", it.asked, f"of {len(it.models)}", "models"),
            measure("not read", it.unread, "models", "RepositoryIndex"),
            measure("not asked", it.not_asked, "ways", "synthetic probe"),
        ],
        advice="Give a longer --duration, raise the probe's max_requests_per_second, or "
        "add a probe of kind synthetic if the config has none.",
    ),
    Check(
        id="no-models",
        severity="unknown",
        holds=lambda it: not it.models and not it.unread,
        title="No ready model matches the config: there is nothing to judge",
        evidence=lambda it: [
            measure("listed", len(it.inventory.index), "", "RepositoryIndex")
        ],
        advice="Load a model, or correct `models.include` and `models.exclude`.",
    ),
    Check(
        id="models-answer",
        severity="ok",
        holds=lambda it: it.well > 0,
        title="{it.well} of {it.asked} probed models answered an inference",
        evidence=lambda it: [
            measure("models ready", len(it.models), "", "RepositoryIndex"),
            measure("models asked", it.asked, "", "synthetic probe"),
            measure("answered every time", it.well, "", "synthetic probe"),
        ],
    ),
    Check(
        id="statistics-unreadable",
        severity="warning",
        holds=lambda it: it.failing("statistics") != "",
        title="The statistics API could not be read: where time goes and how much headroom "
        "there is are unknown",
        evidence=_problem("statistics", "gRPC ModelStatistics"),
        advice="If the API is restricted, put its header under `target.headers`.",
    ),
    # The metrics page.
    Check(
        id="metrics-off",
        triton_only=True,
        severity=lambda it: "warning" if it.failing("metrics") else "info",
        holds=lambda it: "metrics" in it.problems.keys() - it.missing.keys(),
        title="Triton's metrics page was not read",
        evidence=_problem("metrics", "GET /metrics"),
        advice="Start Triton with --allow-metrics=true, or correct `target.metrics`; null "
        "is right there if metrics are off on purpose.",
    ),
    Check(
        id="summaries-on",
        triton_only=True,
        severity="warning",
        holds=lambda it: len(it.last_page.values(SUMMARIES)) > 0,
        title="Latency summaries are on: they cost throughput and cannot be added up",
        evidence=lambda _: [measure("series", SUMMARIES, "", "metrics page")],
        advice="Remove summary_latencies=true from --metrics-config; a user lost 33 % of "
        "throughput on ResNet-50. Take quantiles from sampled traces.",
        reference="server#8561",
    ),
    Check(
        id="energy",
        severity="info",
        holds=lambda it: it.watts > 0,
        title="The GPUs take {it.watts:.0f} W",
        evidence=lambda it: [
            measure("energy", it.joules, "J", GPU_ENERGY.name),
            measure("time", it.page_seconds, "s", "between two metrics pages"),
            measure("inferences", it.inferences, "", INFERENCES),
            measure("energy", it.joules / it.inferences, "J an inference"),
        ],
        advice="Idle power included, all models together, our own probes among them.",
    ),
    Check(
        id="energy-unknown",
        severity=lambda it: (
            "unknown" if it.last_page.values(GPU_POWER.name) else "info"
        ),
        holds=lambda it: not it.watts > 0,
        title="Energy is unknown: no energy counter on the server's metrics page rises",
        evidence=lambda _: [measure(GPU_ENERGY.name, None, "J", "metrics page")],
        advice="A sidecar (`tritonwatch serve`) on the server's machine reads NVML and "
        "RAPL. With a GPU, restart Triton: after failed readings it stops updating the "
        "counter.",
        advice_elsewhere="A sidecar (`tritonwatch serve`) on the server's machine reads NVML "
        "and RAPL.",
    ),
    # Traces.
    Check(
        id="tracing-unknown",
        triton_only=True,
        severity="unknown",
        holds=lambda it: it.traces_unread > 0,
        title="The trace settings of {it.traces_unread} models could not be read",
        evidence=lambda it: [
            measure("answer", it.problems.get("traces", "no time"), "", "TraceSetting")
        ],
        advice="If the API is restricted, put its header under `target.headers`; if there "
        "was no time, give a longer --duration.",
    ),
    Check(
        id="tracing-off",
        triton_only=True,
        severity="info",
        holds=lambda it: (
            len(it.trace_settings) > 0 and not it.traced and it.traces_unread == 0
        ),
        title="Tracing is off: production's tail latency cannot be known",
        advice="Start Triton with --trace-config for files or OpenTelemetry and sample one "
        "in a hundred or fewer; tritonwatch turns that into quantiles.",
        reference="server#7672",
    ),
    # Versions.
    Check(
        id="not-triton",
        severity="info",
        holds=lambda it: len(it.missing) > 0,
        title="The server is {it.info.name}, not Triton: some of Triton's extensions "
        "are missing",
        evidence=lambda it: [
            measure(part, answer, "", "GET /metrics" if part == "metrics" else "gRPC")
            for part, answer in it.missing.items()
        ],
        advice="Nothing: docs/other-servers.md lists what cannot be known without them.",
    ),
    Check(
        id="version-unknown",
        severity="unknown",
        holds=lambda it: (
            it.inventory.up and it.info.is_triton and it.info.numbers is None
        ),
        title="The server's version cannot be read",
        evidence=lambda it: [measure("version", it.info.version, "", "ServerMetadata")],
        advice="Known defects cannot be checked against it.",
    ),
    Check(
        id="version-tracing-crash",
        severity=lambda it: "warning" if it.traced else "info",
        holds=lambda it: it.older_than(2, 57, 0),
        title="Triton {it.info.version}: now and then a traced request crashes the server, or "
        "hangs it while it calls itself ready",
        evidence=_version("2.57.0 (25.04)"),
        advice="Upgrade. Until then, trace to files, and only one or two requests "
        "per second: every traced request is a risk, at any rate. That "
        "server#8144 fixes this crash is inferred from its title; no thread "
        "confirms it.",
        reference="server#7795",
    ),
    Check(
        id="version-remote-code-execution",
        severity="warning",
        holds=lambda it: it.older_than(2, 59, 1),
        title="Triton {it.info.version}: anyone who reaches its HTTP port may run code in it "
        "(CVE-2025-23319, -23310, -23311)",
        evidence=_version("2.59.1 (25.07)"),
        advice="Upgrade. Until then, keep untrusted clients away from the server and "
        "restrict the shared-memory API (--http-restricted-api, "
        "--grpc-restricted-protocol). Later bulletins exist: this table is "
        "not complete.",
        reference="nvidia.custhelp.com/app/answers/detail/a_id/5687",
    ),
)
