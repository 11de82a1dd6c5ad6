"""Production traffic from traces, our own requests taken out."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import LATENCY_BOUNDS as _LATENCY_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

REQUEST_DURATION: Final = MetricSpec(
    "triton_request_duration_seconds",
    "histogram",
    "Time of a traced client request in the server: from its arrival until the last"
    " byte of the (last) answer is handed to the network. Requests that an ensemble or"
    " another model asked for are part of their client's, and not counted here.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
REQUEST_PHASE_DURATION: Final = MetricSpec(
    "triton_request_phase_duration_seconds",
    "histogram",
    "Where the time of traced requests went: network_in, queue, compute_input,"
    " compute_infer, compute_output, network_out. Counts every request of the model,"
    " also those of ensembles and other models, in the phases it had.",
    (*_MODEL, "phase"),
    buckets=_LATENCY_BOUNDS,
)
REQUEST_LATENCY: Final = MetricSpec(
    "triton_request_latency_seconds",
    "summary",
    "Latency quantile of the traced client requests of the sliding window. Absent where"
    " the number of traces cannot support the quantile.",
    (*_MODEL, "quantile"),
)
REQUEST_LATENCY_CI: Final = MetricSpec(
    "triton_request_latency_ci_seconds",
    "summary",
    "Bounds (lower, upper) of the 95 % confidence interval of the process's quantile:"
    " what the next window like this would show. From order statistics, widened by the"
    " dependence between requests as the window's slots of time show it. Absent where"
    " triton_request_latency_effective_samples are too few.",
    (*_MODEL, "quantile", "bound"),
)
REQUEST_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_latency_effective_samples",
    "gauge",
    "Number of independent requests that would tell as much about the quantile as the"
    " traced ones of the window do. The interval needs 6 for p50, 36 for p90, 72 for"
    " p95, 368 for p99, 3688 for p99.9. 0 where the dependence cannot be measured: the"
    " requests came in fewer than four of the window's 30 slots.",
    (*_MODEL, "quantile"),
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
