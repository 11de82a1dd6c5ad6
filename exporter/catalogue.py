"""Every metric exposed: name, kind, labels, unit, help, stability. Data only.

`triton_` is about the server, `tritonwatch_` about this process, `process_` the
standard process metrics. A metric that is not here cannot be exposed; renaming one is
a breaking change.
"""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

LATENCY_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
BATCH_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)

_MODEL: Final = ("model", "version")
_PROBE: Final = ("model", "version", "protocol", "probe")

# The server as a whole.
UP: Final = MetricSpec(
    "triton_up",
    "gauge",
    "1 while the server answers at all, 0 while it does not.",
)
READY: Final = MetricSpec(
    "triton_ready",
    "gauge",
    "1 while the server calls itself ready, 0 while it does not or gives no answer."
    " Says nothing about whether a tensor goes through: see triton_model_serving.",
)
SERVER_INFO: Final = MetricSpec(
    "triton_server_info",
    "info",
    "The server's own metadata, always 1.",
    ("server", "version"),
)
MODEL_READY: Final = MetricSpec(
    "triton_model_ready",
    "gauge",
    "1 for a model version the server calls ready, 0 for one it lists as not ready.",
    _MODEL,
)
MODEL_SERVING: Final = MetricSpec(
    "triton_model_serving",
    "gauge",
    "1 while a tensor really goes through the model version by every probed protocol,"
    " 0 while by any it does not. Absent until it was probed.",
    _MODEL,
)
MODEL_LOADS: Final = MetricSpec(
    "triton_model_loads_total",
    "counter",
    "Times the model version was seen to become ready after this process started.",
    _MODEL,
)
MODELS_UNREADABLE: Final = MetricSpec(
    "triton_models_unreadable",
    "gauge",
    "Ready model versions whose metadata or configuration could not be read.",
)

# Our own probes.
PROBE_DURATION: Final = MetricSpec(
    "triton_probe_duration_seconds",
    "histogram",
    "Time of a probe's request on the wire. A timeout counts with the time waited, so"
    " a quantile that reaches the timeout reads 'at least'.",
    _PROBE,
    "seconds",
    LATENCY_BOUNDS,
)
PROBE_TOTAL: Final = MetricSpec(
    "triton_probe_total",
    "counter",
    "Probe requests by outcome: ok, timeout, unavailable, invalid, model_error,"
    " bad_output.",
    (*_PROBE, "outcome"),
)
PROBE_LATENCY: Final = MetricSpec(
    "triton_probe_latency_seconds",
    "summary",
    "Latency quantile of the probes of the sliding window. Absent where the number of"
    " probes cannot support the quantile.",
    (*_PROBE, "quantile"),
    "seconds",
)
PROBE_SUCCESS: Final = MetricSpec(
    "triton_probe_success",
    "gauge",
    "1 if the latest probe was ok, else 0.",
    _PROBE,
)
PROBE_LAST_DURATION: Final = MetricSpec(
    "triton_probe_last_duration_seconds",
    "gauge",
    "Time of the request of this one probe; on /probe only.",
    _PROBE,
    "seconds",
)
BLACKBOX_SUCCESS: Final = MetricSpec(
    "probe_success",
    "gauge",
    "1 if the target answered and every model probed was ok; on /probe only, named as"
    " blackbox_exporter does.",
)
BLACKBOX_DURATION: Final = MetricSpec(
    "probe_duration_seconds",
    "gauge",
    "Time the whole look at the target took; on /probe only.",
    unit="seconds",
)
PROBE_INTERVAL: Final = MetricSpec(
    "triton_probe_interval_seconds",
    "gauge",
    "Time between two probes of one model as it is kept now: the configured interval,"
    " stretched when the rate limit does not allow it for all models.",
    ("probe",),
    "seconds",
)
OWN_UNRESOLVED: Final = MetricSpec(
    "tritonwatch_own_requests_unresolved_total",
    "counter",
    "Own requests that never got an answer: Triton may or may not have counted them"
    " as production traffic.",
    _MODEL,
)

# Production traffic from the statistics API, our own requests taken out.
REQUESTS: Final = MetricSpec(
    "triton_requests_total",
    "counter",
    "Production requests by outcome (success, failure) since this process first saw"
    " the model; own probes are taken out.",
    (*_MODEL, "outcome"),
)
INFERENCES: Final = MetricSpec(
    "triton_inferences_total",
    "counter",
    "Production inferences: a request with a batch of n counts n. Answers from the"
    " response cache are not among them.",
    _MODEL,
)
EXECUTIONS: Final = MetricSpec(
    "triton_executions_total",
    "counter",
    "Executions of the model on behalf of production: with dynamic batching one serves"
    " several requests.",
    _MODEL,
)
BUSY: Final = MetricSpec(
    "triton_model_busy_seconds_total",
    "counter",
    "Time the model's instances were executing for production (input, inference and"
    " output phases of batch_stats): each execution counts once.",
    _MODEL,
    "seconds",
)
QUEUE: Final = MetricSpec(
    "triton_model_queue_seconds_total",
    "counter",
    "Time production requests waited in the queue, summed over requests.",
    _MODEL,
    "seconds",
)
REQUEST_SECONDS: Final = MetricSpec(
    "triton_model_request_seconds_total",
    "counter",
    "Time of successful production requests inside the server, summed over requests.",
    _MODEL,
    "seconds",
)
COMPUTE: Final = MetricSpec(
    "triton_model_compute_seconds_total",
    "counter",
    "Time of production requests by phase (compute_input, compute_infer,"
    " compute_output), summed over requests.",
    (*_MODEL, "phase"),
    "seconds",
)
CACHE: Final = MetricSpec(
    "triton_response_cache_total",
    "counter",
    "Lookups in Triton's response cache by result (hit, miss), all clients.",
    (*_MODEL, "result"),
)
BATCH_SIZE: Final = MetricSpec(
    "triton_batch_size",
    "histogram",
    "Batch sizes of the executions for production.",
    _MODEL,
    "",
    BATCH_BOUNDS,
)
OWN_REQUESTS: Final = MetricSpec(
    "triton_own_requests_total",
    "counter",
    "This process's own requests to the model by outcome (success, failure), as taken"
    " out of production counts.",
    (*_MODEL, "outcome"),
)
STATISTICS_RESETS: Final = MetricSpec(
    "triton_statistics_resets_total",
    "counter",
    "Times the model's statistics were seen to start over: reload or restart.",
    _MODEL,
)
STATISTICS_DISAGREEMENT: Final = MetricSpec(
    "triton_statistics_disagreement_ratio",
    "gauge",
    "How far the counter on Triton's own /metrics rose apart from the statistics API"
    " since both were first compared or last started over, relative to the latter's"
    " rise. 0 is agreement.",
    (*_MODEL, "counter"),
    "ratio",
)

# Production traffic from traces, our own requests taken out.
REQUEST_DURATION: Final = MetricSpec(
    "triton_request_duration_seconds",
    "histogram",
    "Time of a traced client request in the server: from its arrival until the last"
    " byte of the (last) answer is handed to the network. Requests that an ensemble or"
    " another model asked for are part of their client's, and not counted here.",
    _MODEL,
    "seconds",
    LATENCY_BOUNDS,
)
REQUEST_PHASE_DURATION: Final = MetricSpec(
    "triton_request_phase_duration_seconds",
    "histogram",
    "Where the time of traced requests went: network_in, queue, compute_input,"
    " compute_infer, compute_output, network_out. Counts every request of the model,"
    " also those of ensembles and other models, in the phases it had.",
    (*_MODEL, "phase"),
    "seconds",
    LATENCY_BOUNDS,
)
REQUEST_LATENCY: Final = MetricSpec(
    "triton_request_latency_seconds",
    "summary",
    "Latency quantile of the traced client requests of the sliding window. Absent where"
    " the number of traces cannot support the quantile.",
    (*_MODEL, "quantile"),
    "seconds",
)
REQUEST_LATENCY_CI: Final = MetricSpec(
    "triton_request_latency_ci_seconds",
    "summary",
    "Bounds (lower, upper) of the 95 % confidence interval of the quantile, from order"
    " statistics: no distribution is assumed.",
    (*_MODEL, "quantile", "bound"),
    "seconds",
)
TRACE_RECORDS: Final = MetricSpec(
    "tritonwatch_trace_records_total",
    "counter",
    "Traces by source (otlp, file) and outcome: request, child (asked by a model) and"
    " partial (network times missing) are in the histograms; own, filtered,"
    " unknown_model, invalid, malformed, duplicate and orphan are not.",
    ("source", "outcome"),
)
TRACE_FILES: Final = MetricSpec(
    "tritonwatch_trace_files_total",
    "counter",
    "Trace files by outcome: read, truncated (never completed, its whole records"
    " read), too_large, vanished, unreadable, undeletable.",
    ("outcome",),
)
TRACE_CONTROL: Final = MetricSpec(
    "tritonwatch_trace_control_active",
    "gauge",
    "1 while this process sets the trace rates, 0 while it was asked to but refuses: the"
    " log says why. Absent where it was not asked to.",
)
TRACE_RATE: Final = MetricSpec(
    "triton_trace_sampling_rate",
    "gauge",
    "One request in so many is traced, as this process has set it for the model.",
    ("model",),
)
TAP_REQUESTS: Final = MetricSpec(
    "tritonwatch_tap_requests_total",
    "counter",
    "Requests to a tap by source and outcome: accepted, malformed, too_large,"
    " unsupported, timeout, overloaded; for otlp_forward: forwarded, failed, dropped.",
    ("source", "outcome"),
)

# Service level objectives.
SLO_OBJECTIVE: Final = MetricSpec(
    "triton_slo_objective_ratio",
    "gauge",
    "Share of events that must be good, as configured.",
    ("slo",),
    "ratio",
)
SLO_EVENTS: Final = MetricSpec(
    "triton_slo_events_total",
    "counter",
    "Events of the objective by outcome (good, bad) since this process started. Sum"
    " over replicas before dividing.",
    ("slo", "outcome"),
)
SLO_BURN_RATE: Final = MetricSpec(
    "triton_slo_burn_rate",
    "gauge",
    "Share of bad events over the share allowed, in the window before now as this"
    " process saw it; 1 uses the budget up just at the end of the objective's window."
    " Absent without events.",
    ("slo", "window"),
)
SLO_BUDGET: Final = MetricSpec(
    "triton_slo_error_budget_remaining_ratio",
    "gauge",
    "What is left of the error budget of the objective's window, as this process saw"
    " it: 1 untouched, 0 used up, below 0 overdrawn.",
    ("slo",),
    "ratio",
)

# Ourselves.
BUILD_INFO: Final = MetricSpec(
    "tritonwatch_build_info",
    "info",
    "Version of this program and its Python, always 1.",
    ("version", "python_version"),
)
RELOAD_SUCCESS: Final = MetricSpec(
    "tritonwatch_config_last_reload_successful",
    "gauge",
    "1 if the configuration was read without error the last time it was asked for.",
)
RELOAD_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_config_last_reload_success_timestamp_seconds",
    "gauge",
    "When the running configuration was read.",
    unit="seconds",
)
COLLECTOR_DURATION: Final = MetricSpec(
    "tritonwatch_collector_duration_seconds",
    "gauge",
    "Time the latest run of the collector or probe took.",
    ("collector",),
    "seconds",
)
COLLECTOR_SUCCESS: Final = MetricSpec(
    "tritonwatch_collector_success",
    "gauge",
    "1 if the latest run did its work, 0 if it failed or ran out of time. A probe that"
    " found its model broken did its work.",
    ("collector",),
)
COLLECTOR_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_collector_last_success_timestamp_seconds",
    "gauge",
    "When the collector or probe last did its work.",
    ("collector",),
    "seconds",
)
SERIES_DROPPED: Final = MetricSpec(
    "tritonwatch_series_dropped_total",
    "counter",
    "Series over the collector's budget that were not exposed, summed over its runs.",
    ("collector",),
)
OTLP_EXPORTS: Final = MetricSpec(
    "tritonwatch_otlp_exports_total",
    "counter",
    "Pushes to the OpenTelemetry collector by what was pushed (metrics, traces) and"
    " outcome (ok, failed).",
    ("kind", "outcome"),
)
PROCESS_CPU: Final = MetricSpec(
    "process_cpu_seconds_total",
    "counter",
    "User and system CPU time of this process.",
    unit="seconds",
)
PROCESS_RESIDENT: Final = MetricSpec(
    "process_resident_memory_bytes",
    "gauge",
    "Resident memory of this process.",
    unit="bytes",
)
PROCESS_START: Final = MetricSpec(
    "process_start_time_seconds",
    "gauge",
    "Start of this process, seconds since the epoch.",
    unit="seconds",
)
PROCESS_FDS: Final = MetricSpec(
    "process_open_fds",
    "gauge",
    "Open file descriptors of this process.",
)
PROCESS_MAX_FDS: Final = MetricSpec(
    "process_max_fds",
    "gauge",
    "Most file descriptors this process may open.",
)

CATALOGUE: Final[tuple[MetricSpec, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, MetricSpec)
)
"""Every metric, in the order it is exposed and documented."""
