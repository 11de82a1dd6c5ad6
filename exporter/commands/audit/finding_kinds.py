"""Every kind of finding, as data: its severity and its texts.

Ids are in kebab-case and stable. `{names}` are filled in by the check that finds it; `{key}`
is the model version. Where a check decides the severity or the advice, the usual one stands
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["critical", "warning", "unknown", "info", "ok"]


@dataclass(frozen=True, slots=True)
class Kind:
    """The texts of one kind. `reference` is an issue of Triton's server, or a document."""

    severity: Severity
    title: str
    advice: str = ""
    reference: str = ""


KINDS: Final[dict[str, Kind]] = {
    # The server.
    "server-unreachable": Kind(
        "critical",
        "The server does not answer over gRPC; nothing else could be looked at",
        "Check the address under `target` and that the server runs. If HTTP still "
        "answers, the gRPC service alone is off, blocked or hung.",
    ),
    "server-not-ready": Kind(
        "critical", "The server says that it is not ready: load balancers take it out"
    ),
    "readiness-differs": Kind(
        "warning",
        "gRPC and HTTP disagree on whether the server is ready",
        "Look again: it may just have changed. If it stays, a proxy answers for one of "
        "them.",
    ),
    "http-silent": Kind(
        "warning",
        "The HTTP service does not answer while gRPC does",
        "Start Triton with HTTP, correct `target.http`, or set it to null if HTTP is off "
        "on purpose.",
    ),
    # Readiness of the models.
    "models-answer": Kind(
        "ok", "A tensor went through {well} of {models} that were asked"
    ),
    "dead-backend-stub": Kind(
        "critical",
        "{key} is listed as ready, and every request to it fails",
        "The backend process of the model is gone. Unload the model and load it at "
        "once, though it stays UNLOADING meanwhile (Triton 2.51): a load alone answers "
        "200 and repairs nothing. Failing that, restart Triton.",
        "server#8604",
    ),
    "ready-but-failing": Kind(
        "critical",
        "{key} is listed as ready, and every request to it fails",
        "Take it out of traffic and read the server's log for the error. Unload "
        "and load it if the backend died; check its dependencies if outputs are "
        "empty or NaN.",
        "server#7164",
    ),
    "fails-over-one-protocol": Kind(
        "warning",
        "{key} answers {ok} of {asked} requests and none over {where}",
        "Compare the two services' settings and what stands in front of them.",
    ),
    "fails-sometimes": Kind(
        "warning",
        "{key} answers {ok} of {asked} requests",
        "Look for one bad instance, a queue limit or a timeout near the model's own "
        "latency.",
    ),
    "production-fails": Kind(
        "warning",
        "{key}: {ratio:.0%} of production's requests failed",
        "Read the server's log for the error. There may be more: an error that a "
        "Python model raises itself is counted as success (Triton 2.51).",
    ),
    "probe-does-not-fit": Kind(
        "unknown",
        "{key} refuses the made-up tensor; whether it works is unknown",
        "Give its inputs under probes[].overrides[{name!r}]: shape, range or values.",
    ),
    "ready-but-unreadable": Kind(
        "critical",
        "{key} is listed as ready, but its metadata is refused",
        "Unload and load the model; if it was just being replaced, look again.",
        "server#7588",
    ),
    "model-not-ready": Kind(
        "warning",
        "{key} is {state}",
        "Repair what the reason names and load it again, or remove it from the "
        "repository.",
    ),
    "models-unloaded": Kind(
        "info", "Not loaded of what the repository lists: {models}"
    ),
    "not-asked": Kind(
        "unknown",
        "Not every ready model could be asked in the time given",
        "Give a longer --duration, or raise the probe's max_requests_per_second.",
    ),
    "no-probe": Kind(
        "unknown",
        "No synthetic probe is configured: readiness is Triton's word alone",
        "Leave `probes` out of the config for the default, or add one of kind "
        "synthetic.",
    ),
    "no-models": Kind(
        "unknown",
        "No ready model matches the config: there is nothing to judge",
        "Load a model, or correct `models.include` and `models.exclude`.",
    ),
    # Where the time goes.
    "time-shares": Kind("info", "{key}: {ratio:.0%} of {total:.3g} ms is {most}"),
    "no-production-traffic": Kind(
        "info",
        "{few} of {models} got next to no requests while we watched",
        "Their shares come from all requests since they were loaded, probes among "
        "them; audit again under traffic for what is so now.",
    ),
    "not-enough-data": Kind(
        "unknown",
        "{few} of {models} had too few requests to judge by",
        "Audit again under traffic, with a longer --duration.",
    ),
    "statistics-unreadable": Kind(
        "warning",
        "The statistics API could not be read: where time goes is unknown",
        "If the API is restricted, put its header under `target.headers`.",
    ),
    "copies-dominate": Kind(
        "warning",
        "{key} spends longer on moving tensors than on inference",
        "Send tensors through shared memory, keep outputs that feed another model on "
        "the device, or send less: smaller types, fewer outputs.",
    ),
    "network-share": Kind(
        "info",
        "{key}: {network:.2f} ms of a probe's {client:.2f} ms is outside of the server",
        "Up to about 0.6 ms of it is the Python client of this probe.",
    ),
    "network-unknown": Kind(
        "info",
        "The network's share is unknown for {models}",
        "It needs requests of ours with no other in between: audit at a quieter "
        "time, or with a longer --duration.",
    ),
    # Batching.
    "batch-size": Kind(
        "info", "{key} executes {batch:.2f} inferences at a time, of {most} it could"
    ),
    "queue-exceeds-compute": Kind(
        "warning",
        "{key}: a request waits {queue:.3g} ms for {compute:.3g} ms of work",
        "Add instances (instance_group.count) while the device has room, else replicas.",
    ),
    "batching-off": Kind(
        "info",
        "{key} takes batches of {most}, and dynamic batching is off",
        "Turn on dynamic_batching if requests come at the same time: with the "
        "default delay of 0 a lone request pays nothing.",
    ),
    "delay-without-batches": Kind(
        "info",
        "{key} waits up to {delay} µs for batches and executes one at a time",
        "Set max_queue_delay_microseconds to 0, or send requests at the same time: "
        "now each pays the delay for nothing.",
    ),
    # Headroom and energy.
    "instances-saturated": Kind(
        "warning",
        "{key} is busy {ratio:.0%} of the time: headroom at most {rest:.0%}",
        "Add instances or replicas before traffic grows: waiting times rise steeply "
        "from here on.",
    ),
    "headroom": Kind(
        "info",
        "{key} is busy {ratio:.0%} of the time: headroom at most {rest:.0%}",
        "An upper bound: it assumes that an execution keeps its time under more load, "
        "and that instances and models do not share a device. `tritonwatch load "
        "capacity` measures it.",
    ),
    "headroom-unknown": Kind(
        "info",
        "Headroom is unknown for {models}",
        "It needs traffic while we watch and the number of instances: audit again "
        "under load, with HTTP configured.",
    ),
    "cpu-full": Kind(
        "warning",
        "The host's CPU is {least:.0%} busy",
        "Everything on this host waits for it: give the server more cores, or move what "
        "else runs here.",
    ),
    "cpu": Kind("info", "The host's CPU is {least:.0%} busy"),
    "energy": Kind(
        "info",
        "The boards take {watts:.0f} W{each}",
        "Idle power included, all models together, our own probes among them.",
    ),
    "energy-gpu": Kind(
        "info",
        "The boards take {least}{watts:.0f} W{modelled}{each}",
        "Idle power included, all models together; the sidecar divides it.",
    ),
    "energy-host": Kind(
        "info",
        "The host takes {least}{watts:.0f} W{modelled}{each}",
        "Idle power included, all models together; the sidecar divides it.",
    ),
    "energy-unknown": Kind(
        "info",
        "Energy is unknown: Triton's page shows no energy counter that rises",
        "Run the audit where it can read NVML or RAPL, or give `power.sources` a "
        "model of the machine.",
    ),
    # Do probes stand for production?
    "probe-like-production": Kind(
        "ok",
        "{key}: a probe takes {ours:.3g} ms of work, a production request {theirs:.3g} ms",
    ),
    "probe-unlike-production": Kind(
        "warning",
        "{key}: a probe takes {ours:.3g} ms of work, a production request {theirs:.3g} ms",
        "Give shapes and values like production's under probes[].overrides[{name!r}]: "
        "until then a probe's latency says little about users'.",
    ),
    # Triton's own metrics page.
    "metrics-off": Kind(
        "warning",
        "Triton's metrics page {problem}",
        "Start Triton with --allow-metrics=true, or correct `target.metrics`; set it "
        "to null if metrics are off on purpose.",
    ),
    "counters-frozen-at-zero": Kind(
        "warning",
        "{key}: the metrics page shows 0 requests of {counted}",
        "Remove counter_latencies=false from --metrics-config: it stops every "
        "request counter. Until then build alerts on the statistics API.",
        "server#8125",
    ),
    "metrics-disagree": Kind(
        "warning",
        "{key}: the metrics page and the statistics API count differently",
        "Trust the statistics API: its rise is what we sent ourselves at least. "
        "Dashboards and autoscalers on nv_* see something else.",
        "server#8125",
    ),
    "metrics-agree": Kind("ok", "The metrics page and the statistics API count alike"),
    "gpu-gauge-latched": Kind(
        "warning",
        "{name} reads 0 on {gpus}: that is a failed reading, not a measurement",
        "After three failures Triton never reads it again until it is restarted. "
        "Take power and utilisation from NVML or DCGM; look for MIG or a second DCGM.",
        "server#5324",
    ),
    "energy-counter-frozen": Kind(
        "warning",
        "nv_energy_consumption does not rise while the GPU takes power",
        "Restart Triton to have it read again, and take energy from NVML.",
        "server#5324",
    ),
    "summaries-on": Kind(
        "warning",
        "Latency summaries are on: they cost throughput and cannot be added up",
        "Remove summary_latencies=true from --metrics-config; a user lost 33 % of "
        "throughput on ResNet-50. Take quantiles from sampled traces.",
        "server#8561",
    ),
    "first-response-histogram": Kind(
        "info",
        "The first-response histogram covers {models}, {decoupled} of them decoupled",
        "Its buckets, 100 to 5000 ms unless model_metrics sets others (from Triton 2.52 "
        "on), are too coarse for the tail of a model that answers once.",
        "server#7672",
    ),
    # Tracing.
    "trace-buffer-unbounded": Kind(
        "critical",
        "Traces of {who} are kept in memory until the server ends",
        "Set log_frequency to, say, 100 (it can be changed now, over the trace API): "
        "then each 100 traces go to a file and out of memory.",
    ),
    "trace-tensors-on": Kind(
        "warning",
        "Whole tensors of {who} are written into traces",
        "Use it for moments only: it copies every traced tensor to the host, puts "
        "users' data on disk, and kills a server whose Python backend has numpy 2.",
    ),
    "trace-rate-starves": Kind(
        "info",
        "{who} yields less than one trace a minute at the global rate",
        "Set a rate of its own for each model, a prime so that periodic clients do "
        "not alias; `collectors: [{{kind: traces, control: true}}]` does.",
    ),
    "tracing-unknown": Kind(
        "unknown",
        "The trace settings cannot be read",
        "If the API is restricted, put its header under `target.headers`.",
    ),
    "tracing-off": Kind(
        "info",
        "Tracing is off: production's tail latency cannot be known",
        "Start Triton with --trace-config for files or OpenTelemetry and sample one "
        "in a hundred or fewer; tritonwatch turns that into quantiles.",
        "server#7672",
    ),
    # Versions and settings.
    "not-triton": Kind(
        "info",
        "The server is {name}, not Triton: some of Triton's extensions are missing",
        "Nothing: docs/other-servers.md lists what cannot be known without them.",
    ),
    "version-unknown": Kind(
        "unknown",
        "The server tells no version that can be read",
        "Known defects cannot be checked against it.",
    ),
    "version-tracing-crash": Kind(
        "info",
        "Triton {version}: now and then a traced request crashes the server, or hangs "
        "it while it calls itself ready",
        "Upgrade; until then trace to files, and one or two requests a second: every "
        "traced one is a risk, at any rate. The fix (server#8144) is taken for this "
        "crash's by its title; no thread says so.",
        "server#7795",
    ),
    "version-opentelemetry-hang": Kind(
        "info",
        "Triton {version}: OpenTelemetry tracing with level OFF hangs requests and "
        "crashes the server",
        "Start with --trace-config level=TIMESTAMPS, or upgrade.",
        "server#6967",
    ),
    "version-remote-code-execution": Kind(
        "info",
        "Triton {version}: who reaches its HTTP port may run code in it "
        "(CVE-2025-23319, -23310, -23311)",
        "Upgrade; until then let nobody untrusted reach the server and restrict the "
        "shared-memory API (--http-restricted-api, --grpc-restricted-protocol). Later "
        "bulletins exist: this table is not complete.",
        "nvidia.custhelp.com/app/answers/detail/a_id/5687",
    ),
    "response-cache-on": Kind(
        "info",
        "{key} may answer from the response cache",
        "A golden probe with fixed inputs proves nothing then: a cached answer looks "
        "right while the backend is broken. Request statistics include the hits.",
    ),
    "model-control-explicit": Kind(
        "info",
        "Models seem to be loaded on request (--model-control-mode=explicit)",
        "After a restart only --load-model names are back. Whoever reaches the port "
        "can load and unload: restrict the model-repository API.",
    ),
    "readiness-not-strict": Kind(
        "info",
        "The server calls itself ready with {models} that failed",
        "--strict-readiness seems to be off: check each model's readiness, or a "
        "probe, and not the server's.",
        "server#7588",
    ),
}
