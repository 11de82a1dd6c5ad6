"""Production traffic from traces, our own requests taken out."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import LATENCY_BOUNDS as _LATENCY_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.catalogue.shared import RESPONSE_BOUNDS as _RESPONSE_BOUNDS
from exporter.samples import MetricSpec

REQUEST_DURATION: Final = MetricSpec(
    "triton_request_duration_seconds",
    "Time of a traced client request in the server, from its arrival until the last"
    " byte of the last response is handed to the network; for `/generate` and"
    " `/generate_stream`, until the model completed it. Requests made by ensembles"
    " or other models are part of their client's request and not counted here.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
REQUEST_PHASE_DURATION: Final = MetricSpec(
    "triton_request_phase_duration_seconds",
    "Time of traced requests by phase: network_in, queue, compute_input,"
    " compute_infer, compute_output, network_out. Requests made by ensembles and"
    " other models are included. compute_infer of a streamed answer ends with its"
    " last response. Unknown phases are left out: network_out of `/generate` and"
    " `/generate_stream`, compute_output of streamed answers, and both compute"
    " phases if another model called a decoupled one.",
    (*_MODEL, "phase"),
    buckets=_LATENCY_BOUNDS,
)
REQUEST_LATENCY: Final = MetricSpec(
    "triton_request_latency_seconds",
    "Latency quantile of the traced client requests in the sliding window. Absent"
    " if there are too few traces for the quantile.",
    (*_MODEL, "quantile"),
)
REQUEST_LATENCY_CI: Final = MetricSpec(
    "triton_request_latency_ci_seconds",
    "Bounds (lower, upper) of the 95 % confidence interval of the quantile, for the"
    " process that generates latencies: where the quantile of another window under"
    " the same conditions would be. From order statistics, widened by the"
    " correlation between requests within the window and between windows. Absent if"
    " triton_request_latency_effective_samples is too small.",
    (*_MODEL, "quantile", "bound"),
)
REQUEST_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_latency_effective_samples",
    "Number of independent requests that would determine the quantile as precisely"
    " as the traced ones in the window. The interval needs 6 for p50, 36 for p90, 72"
    " for p95, 368 for p99, 3688 for p99.9. A window counts as at least as correlated"
    " as the median of the last twelve, and as the differences between them show. 0 if"
    " the correlation cannot be measured: the requests came in fewer than four of the"
    " window's 30 slots.",
    (*_MODEL, "quantile"),
)
FIRST_RESPONSE: Final = MetricSpec(
    "triton_request_first_response_seconds",
    "Time of a traced, streamed client request in the server from its arrival until"
    " its first response: over gRPC until that is handed to the network, over HTTP"
    " until the model completed it. Requests with several responses count: a single"
    " one may be the whole answer of a client that does not stream. Traces do not"
    " distinguish failed, cancelled and empty responses from others.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
RESPONSE_GAP: Final = MetricSpec(
    "triton_request_response_gap_seconds",
    "Time between consecutive responses of a traced, streamed client request: n"
    " responses have n - 1 gaps. Over gRPC the last gap may be the one before an"
    " empty final response, if the client asks for one.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
RESPONSES: Final = MetricSpec(
    "triton_request_responses",
    "Number of responses to a traced client request to a decoupled model, or with"
    " several responses. Over gRPC an empty"
    " final response counts if the client asks for it. A cancelled request has the"
    " responses sent before. Requests without a response are not counted.",
    _MODEL,
    buckets=_RESPONSE_BOUNDS,
)
REQUEST_GOODPUT: Final = MetricSpec(
    "triton_request_goodput_total",
    "Traced client requests by whether they met all limits with that name in"
    " `limits` of the traces collector at once (met, missed). A request without a"
    " response missed them; one with a single response is judged by total_seconds"
    " alone, and does not count without that limit.",
    (*_MODEL, "limits", "outcome"),
)
FIRST_RESPONSE_LATENCY: Final = MetricSpec(
    "triton_request_first_response_latency_seconds",
    "Quantile of triton_request_first_response_seconds over the sliding window."
    " Absent if there are too few requests for it.",
    (*_MODEL, "quantile"),
)
FIRST_RESPONSE_LATENCY_CI: Final = MetricSpec(
    "triton_request_first_response_latency_ci_seconds",
    "Bounds (lower, upper) of the 95 % confidence interval of the quantile, as in"
    " triton_request_latency_ci_seconds.",
    (*_MODEL, "quantile", "bound"),
)
FIRST_RESPONSE_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_first_response_latency_effective_samples",
    "Number of independent requests that would determine the quantile as precisely,"
    " as in triton_request_latency_effective_samples.",
    (*_MODEL, "quantile"),
)
RESPONSE_GAP_LATENCY: Final = MetricSpec(
    "triton_request_response_gap_latency_seconds",
    "Quantile of triton_request_response_gap_seconds over all gaps in the sliding"
    " window: a request with many responses weighs more. Absent without its"
    " interval.",
    (*_MODEL, "quantile"),
)
RESPONSE_GAP_LATENCY_CI: Final = MetricSpec(
    "triton_request_response_gap_latency_ci_seconds",
    "Bounds (lower, upper) of the 95 % confidence interval of the quantile, as in"
    " triton_request_latency_ci_seconds. All gaps of a request fall in one slot of"
    " the window, so their correlation widens it.",
    (*_MODEL, "quantile", "bound"),
)
RESPONSE_GAP_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_response_gap_latency_effective_samples",
    "Number of independent gaps that would determine the quantile as precisely: if"
    " the gaps of a request are alike, hardly more than there are requests. 0 if the"
    " correlation cannot be measured: the requests ended in fewer than four of the"
    " window's 30 slots.",
    (*_MODEL, "quantile"),
)
TRACE_RECORDS: Final = MetricSpec(
    "tritonwatch_trace_records_total",
    "Traces by source (otlp, file) and outcome: request, child (made by a model)"
    " and partial (network times missing) are in the histograms; own, watcher (of"
    " another tritonwatch), filtered, unknown_model, invalid, malformed, duplicate,"
    " orphan and foreign (spans that Triton did not make) are not.",
    ("source", "outcome"),
)
TRACE_FILES: Final = MetricSpec(
    "tritonwatch_trace_files_total",
    "Trace files by outcome: read, truncated (incomplete; whole records were read),"
    " too_large, vanished, unreadable, undeletable, beyond_limit (unread, and more than"
    " 100,000 others were changed later).",
    ("outcome",),
)
