"""The findings about one model version, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import Check, measure
from exporter.commands.audit.model_seen import ENOUGH_REQUESTS

if TYPE_CHECKING:
    from exporter.commands.audit.audit_evidence import Listed
    from exporter.commands.audit.finding import Measure
    from exporter.commands.audit.model_seen import ModelSeen

_FEW_FAILURES: Final = 0.001
_MANY_FAILURES: Final = 0.5
_WORTH_SECONDS: Final = 0.001
_ALWAYS_ONE: Final = 1.05
"""Mean batches below that are single inferences."""
_SATURATED: Final = 0.85


def _answered(model: ModelSeen) -> tuple[Measure, ...]:
    return (
        measure("answered", model.ok, f"of {model.asked}", "synthetic probe"),
        measure("error", model.error, "", "synthetic probe"),
    )


def _busy(model: ModelSeen) -> tuple[Measure, ...]:
    return (
        measure("busy", model.busy_seconds, "s", "statistics, this window"),
        measure("window", model.window_seconds, "s", "this audit"),
        measure("instances", model.spec.instances, "", "model config"),
    )


LISTED_CHECKS: Final[tuple[Check[Listed], ...]] = (
    Check(
        id="ready-but-unreadable",
        severity="critical",
        holds=lambda it: it.refused != "",
        title="{key} is listed as ready, but its metadata is refused",
        evidence=lambda it: [measure("error", it.refused, "", "gRPC ModelMetadata")],
        advice="Unload and load the model; if it was just being replaced, audit again.",
        reference="server#7588",
    ),
    Check(
        id="model-not-ready",
        severity=lambda it: "warning" if it.failed else "info",
        holds=lambda it: it.failed or it.entry.state in {"LOADING", "UNLOADING"},
        title="{key} is {it.entry.state}",
        evidence=lambda it: [
            measure("reason", it.entry.reason or None, "", "RepositoryIndex")
        ],
        advice="If it is loading or unloading, wait. Otherwise repair what the reason names and "
        "load it again, or remove it from the repository.",
    ),
)

MODEL_CHECKS: Final[tuple[Check[ModelSeen], ...]] = (
    Check(
        id="dead-backend-stub",
        severity="critical",
        holds=lambda it: it.fails and it.stub_died,
        title="{key} is listed as ready, and every request to it fails",
        evidence=_answered,
        advice="The backend process of the model has died. Unload the model and then "
        "load it at once, without waiting for UNLOADING to end (Triton 2.51): "
        "a load alone answers 200 but repairs nothing. If that fails, restart "
        "Triton.",
        advice_elsewhere="The backend process of the model has died. Unload the model and "
        "load it. If that fails, restart the server.",
        reference="server#8604",
    ),
    Check(
        id="ready-but-failing",
        severity="critical",
        holds=lambda it: it.fails and not it.stub_died,
        title="{key} is listed as ready, and every request to it fails",
        evidence=_answered,
        advice="Take it out of traffic and read the server's log for the error. Unload "
        "and load it if the backend died; check its dependencies if outputs are empty or "
        "NaN (server#7053).",
        advice_elsewhere="Take it out of traffic and read the server's log for the error. "
        "Unload and load it if its process died; check its dependencies if outputs are empty "
        "or NaN.",
        reference="server#7164",
    ),
    Check(
        id="fails-over-one-protocol",
        severity="warning",
        holds=lambda it: it.fails_partly and it.silent_protocol != "",
        title="{key} answered {it.ok} of {it.asked} requests, and none over "
        "{it.silent_protocol}",
        evidence=_answered,
        advice="Compare the settings of the two services and the proxies in front of "
        "them.",
    ),
    Check(
        id="fails-sometimes",
        severity="warning",
        holds=lambda it: it.fails_partly and it.silent_protocol == "",
        title="{key} answered {it.ok} of {it.asked} requests",
        evidence=_answered,
        advice="Look for one bad instance, a queue limit or a timeout near the model's "
        "own latency.",
    ),
    Check(
        id="streams-stall",
        severity="warning",
        holds=lambda it: it.stalled > 0,
        title="{key}: {it.stalled} of {it.asked} streamed answers stalled",
        evidence=_answered,
        advice="Look for a full cache, requests that wait inside the engine, and long "
        "prompts that are read between two tokens of others; the limits are "
        "max_first_response_seconds and max_gap_seconds of the probe.",
    ),
    Check(
        id="probe-does-not-fit",
        severity="unknown",
        holds=lambda it: it.misfit,
        title="{key} refuses the made-up tensor; whether it works is unknown",
        evidence=lambda it: [measure("error", it.error, "", "synthetic probe")],
        advice="Give shape, range or values of its inputs under the model's name in "
        "probes[].overrides.",
    ),
    Check(
        id="production-fails",
        severity=lambda it: (
            "critical" if it.failed_ratio >= _MANY_FAILURES else "warning"
        ),
        holds=lambda it: it.failed_ratio >= _FEW_FAILURES,
        title="{key}: {it.failed_ratio!p} of production's requests failed",
        evidence=lambda it: [
            measure("failed", it.window.fail.count, "", "statistics"),
            measure("succeeded", it.window.success.count, "", "statistics"),
            measure("window", it.window_seconds, "s", "this audit"),
        ],
        advice="Read the server's log for the error. There may be more: an error that a "
        "Python model raises itself is counted as success (Triton 2.51).",
        advice_elsewhere="Read the server's log for the error.",
    ),
    Check(
        id="copies-dominate",
        severity="warning",
        holds=lambda it: (
            it.share.copies > max(it.share.compute_infer, _WORTH_SECONDS / 2)
        ),
        title="{key} spends longer on moving tensors than on inference",
        evidence=lambda it: [
            measure("compute_input", it.share.compute_input, "s", "statistics"),
            measure("compute_infer", it.share.compute_infer, "s", "statistics"),
            measure("compute_output", it.share.compute_output, "s", "statistics"),
        ],
        advice="Send tensors through shared memory, keep outputs that feed another model "
        "on the device, or send less: smaller types, fewer outputs.",
    ),
    Check(
        id="queue-exceeds-compute",
        severity="warning",
        holds=lambda it: (
            it.share.queue > max(it.share.compute, _WORTH_SECONDS) and not it.spec.steps
        ),
        title="{key}: a request waits {it.share.queue!d} for {it.share.compute!d} of work",
        evidence=lambda it: [
            measure("instances", it.spec.instances or None, "", "model config"),
            measure("mean batch", it.batch, "inferences", "statistics"),
            measure("dynamic batching", it.batching, "", "model config"),
            measure("read from", it.share.source),
        ],
        advice="If requests wait no longer than max_queue_delay_microseconds, lower "
        "it. If dynamic_batching is off, turn it on. If batches are full, "
        "raise max_batch_size. Otherwise add instances (instance_group.count) "
        "while the device has capacity, or replicas.",
    ),
    Check(
        id="delay-without-batches",
        severity="warning",
        holds=lambda it: (
            it.batch < _ALWAYS_ONE
            and it.spec.max_queue_delay_us / 1e6 >= _WORTH_SECONDS
            and it.share.queue > it.spec.max_queue_delay_us / 2e6
        ),
        title="{key} waits up to {it.spec.max_queue_delay_us} µs for batches and "
        "executes one at a time",
        evidence=lambda it: [
            measure("mean batch", it.batch, "inferences", "statistics"),
            measure("queue", it.share.queue, "s a request", "statistics"),
        ],
        advice="Set max_queue_delay_microseconds to 0, or send requests at the same time: "
        "now each pays the delay for nothing.",
    ),
    Check(
        id="batching-off",
        severity="info",
        holds=lambda it: (
            it.spec.max_batch_size > 1
            and not it.spec.dynamic_batching
            and not it.spec.sequence
            and it.batch < _ALWAYS_ONE
        ),
        title="{key} supports batches of {it.spec.max_batch_size}, but dynamic "
        "batching is off",
        evidence=lambda it: [measure("mean batch", it.batch, "", "statistics")],
        advice="Turn on dynamic_batching if requests come at the same time: with the "
        "default delay of 0 a lone request pays nothing.",
    ),
    Check(
        id="instances-saturated",
        severity="warning",
        holds=lambda it: it.busy_ratio >= _SATURATED,
        title="{key} is busy {it.busy_ratio!p} of the time: headroom at most "
        "{it.headroom_ratio!p}",
        evidence=_busy,
        advice="Add instances or replicas before traffic grows: waiting times rise "
        "steeply from here on.",
    ),
    Check(
        id="headroom",
        severity="info",
        holds=lambda it: it.busy_ratio < _SATURATED and it.share.source == "window",
        title="{key} is busy {it.busy_ratio!p} of the time: headroom at most "
        "{it.headroom_ratio!p}",
        evidence=_busy,
        advice="An upper bound: it assumes that an execution keeps its time under more "
        "load, and that instances and models do not share a device. `tritonwatch load "
        "capacity` measures it.",
    ),
    Check(
        id="no-production-traffic",
        severity="info",
        holds=lambda it: (
            not it.busy_ratio >= (0 if it.share.source == "window" else _SATURATED)
            and it.share.server >= 0
            and not it.spec.steps
        ),
        title="{key}: its headroom is unknown",
        evidence=lambda it: [
            measure("executions", it.window.execution_count, "", "this window"),
            measure("instances", it.spec.instances or None, "", "model config"),
        ],
        advice="Audit again under traffic. Shares of time that are cumulative come from "
        "all requests since the model was loaded, probes among them.",
    ),
    Check(
        id="not-enough-data",
        severity="unknown",
        holds=lambda it: it.counted and it.share.requests < ENOUGH_REQUESTS,
        title="{key} had too few requests to judge by: where its time goes and its "
        "headroom are unknown",
        evidence=lambda it: [measure("requests", it.share.requests, "", "statistics")],
        advice="Audit again under traffic, with a longer --duration.",
    ),
    Check(
        id="decoupled-counters",
        triton_only=True,
        severity="info",
        holds=lambda it: it.spec.decoupled and it.counted,
        title="{key} is decoupled: Triton's counts and times of it mean little",
        evidence=lambda it: [
            measure("success", it.second.success.count, "", "statistics"),
            measure("time", it.second.success.ns / 1e9, "s in all", "statistics"),
        ],
        advice="An answer from a thread is counted as a success before its first "
        "response, also where an error or a cancellation follows. Trace its requests "
        "(collector traces): first response, gaps and duration are measured there.",
        reference="server#8463",
    ),
    Check(
        id="counters-frozen-at-zero",
        triton_only=True,
        severity="warning",
        holds=lambda it: it.page_requests == 0 and it.first.success.count > 0,
        title="{key}: the metrics page shows 0 requests of {it.first.success.count}",
        evidence=lambda it: [
            measure("requests", 0, "", "nv_inference_request_success"),
            measure("requests", it.first.success.count, "", "statistics API, before"),
        ],
        advice="Remove counter_latencies=false from --metrics-config: it stops every "
        "request counter. Until then build alerts on the statistics API.",
        reference="server#8125",
    ),
    Check(
        id="trace-buffer-unbounded",
        triton_only=True,
        severity="critical",
        holds=lambda it: it.traced_in_memory,
        title="Traces of {key} are kept in memory until the server ends",
        evidence=lambda _: [measure("log_frequency", 0, "", "gRPC TraceSetting")],
        advice="Set log_frequency to, say, 100 (it can be changed now, over the trace "
        "API): then each 100 traces go to a file and out of memory.",
    ),
    Check(
        id="trace-tensors-on",
        triton_only=True,
        severity="warning",
        holds=lambda it: "TENSORS" in it.trace_setting("trace_level"),
        title="Whole tensors of {key} are written into traces",
        evidence=lambda it: [
            measure("trace_rate", it.trace_setting("trace_rate"), "", "TraceSetting")
        ],
        advice="Use it for moments only: it copies every traced tensor to the host, puts "
        "users' data on disk, and kills a server whose Python backend has numpy 2.",
    ),
)
