"""Production traffic from traces, our own requests taken out."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import LATENCY_BOUNDS as _LATENCY_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.catalogue.shared import RESPONSE_BOUNDS as _RESPONSE_BOUNDS
from exporter.samples import MetricSpec

REQUEST_DURATION: Final = MetricSpec(
    "triton_request_duration_seconds",
    "Time of a traced client request in the server: from its arrival until the last"
    " byte of the (last) answer is handed to the network; through `/generate` and"
    " `/generate_stream`, until the model has completed it. Requests that an ensemble or"
    " another model asked for are part of their client's, and not counted here.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
REQUEST_PHASE_DURATION: Final = MetricSpec(
    "triton_request_phase_duration_seconds",
    "Where the time of traced requests went: network_in, queue, compute_input,"
    " compute_infer, compute_output, network_out. Counts every request of the model,"
    " also those of ensembles and other models, in the phases it had. compute_infer of a"
    " streamed answer lasts until its last response. Phases that are not known are left"
    " out: network_out through `/generate` and `/generate_stream`, compute_output of"
    " streamed answers, and both compute phases where a model asked a decoupled one.",
    (*_MODEL, "phase"),
    buckets=_LATENCY_BOUNDS,
)
REQUEST_LATENCY: Final = MetricSpec(
    "triton_request_latency_seconds",
    "Latency quantile of the traced client requests of the sliding window. Absent where"
    " the number of traces cannot support the quantile.",
    (*_MODEL, "quantile"),
)
REQUEST_LATENCY_CI: Final = MetricSpec(
    "triton_request_latency_ci_seconds",
    "Bounds (lower, upper) of the 95 % confidence interval of the process's quantile:"
    " what the next window like this would show. From order statistics, widened by the"
    " dependence between requests as the window's slots of time show it. Absent where"
    " triton_request_latency_effective_samples are too few.",
    (*_MODEL, "quantile", "bound"),
)
REQUEST_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_latency_effective_samples",
    "Number of independent requests that would tell as much about the quantile as the"
    " traced ones of the window do. The interval needs 6 for p50, 36 for p90, 72 for"
    " p95, 368 for p99, 3688 for p99.9. 0 where the dependence cannot be measured: the"
    " requests came in fewer than four of the window's 30 slots.",
    (*_MODEL, "quantile"),
)
FIRST_RESPONSE: Final = MetricSpec(
    "triton_request_first_response_seconds",
    "Time of a traced, streamed client request in the server from its arrival until its"
    " first response: over gRPC until it is handed to the network, over HTTP until the"
    " model has completed it (`/generate` sends it with the final flag). Streamed are"
    " requests to decoupled models and those with several responses. Traces do not"
    " distinguish failed and cancelled requests from others, nor empty responses from"
    " others.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
RESPONSE_GAP: Final = MetricSpec(
    "triton_request_response_gap_seconds",
    "Time from each response of a traced, streamed client request to the next one, as"
    " many for each request as it has responses but one. Over gRPC the last gap may be"
    " that before an empty final response, where the client asks for one.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
RESPONSES: Final = MetricSpec(
    "triton_request_responses",
    "Responses that a traced, streamed client request was sent. Over gRPC an empty final"
    " response is one of them where the client asks for it; a cancelled request has those"
    " that it was sent before. Requests that were sent none are not counted.",
    _MODEL,
    buckets=_RESPONSE_BOUNDS,
)
REQUEST_GOODPUT: Final = MetricSpec(
    "triton_request_goodput_total",
    "Traced client requests by whether they met all of the traces collector's `limits` of"
    " that name at once (met, missed). One that was sent no response missed them.",
    (*_MODEL, "limits", "outcome"),
)
FIRST_RESPONSE_LATENCY: Final = MetricSpec(
    "triton_request_first_response_latency_seconds",
    "Quantile of triton_request_first_response_seconds over the sliding window. Absent"
    " where the number of requests cannot support it.",
    (*_MODEL, "quantile"),
)
FIRST_RESPONSE_LATENCY_CI: Final = MetricSpec(
    "triton_request_first_response_latency_ci_seconds",
    "Bounds (lower, upper) of the 95 % confidence interval of the quantile, as those of"
    " triton_request_latency_ci_seconds.",
    (*_MODEL, "quantile", "bound"),
)
FIRST_RESPONSE_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_first_response_latency_effective_samples",
    "Number of independent requests that would show as much about the quantile, as"
    " triton_request_latency_effective_samples.",
    (*_MODEL, "quantile"),
)
RESPONSE_GAP_LATENCY: Final = MetricSpec(
    "triton_request_response_gap_latency_seconds",
    "Quantile of triton_request_response_gap_seconds over the sliding window, of all gaps"
    " together: a request with many responses counts more. Absent without its interval.",
    (*_MODEL, "quantile"),
)
RESPONSE_GAP_LATENCY_CI: Final = MetricSpec(
    "triton_request_response_gap_latency_ci_seconds",
    "Bounds (lower, upper) of the 95 % confidence interval of the quantile, as those of"
    " triton_request_latency_ci_seconds. All gaps of a request are in one slot of the"
    " window, so that their dependence widens it.",
    (*_MODEL, "quantile", "bound"),
)
RESPONSE_GAP_LATENCY_EFFECTIVE: Final = MetricSpec(
    "triton_request_response_gap_latency_effective_samples",
    "Number of independent gaps that would show as much about the quantile: where those of"
    " a request are alike, hardly more than there are requests. 0 where the dependence"
    " cannot be measured: the requests ended in fewer than four of the window's 30 slots.",
    (*_MODEL, "quantile"),
)
TRACE_RESPONSES_CUT: Final = MetricSpec(
    "tritonwatch_trace_responses_cut_total",
    "Responses of traced requests, by source (otlp, file), that came after the first"
    " 10,000 of their request: they are in triton_request_responses, and their gaps are"
    " not known.",
    ("source",),
)
TRACE_RECORDS: Final = MetricSpec(
    "tritonwatch_trace_records_total",
    "Traces by source (otlp, file) and outcome: request, child (asked by a model) and"
    " partial (network times missing) are in the histograms; own, filtered,"
    " unknown_model, invalid, malformed, duplicate and orphan are not.",
    ("source", "outcome"),
)
TRACE_FILES: Final = MetricSpec(
    "tritonwatch_trace_files_total",
    "Trace files by outcome: read, truncated (never completed, its whole records"
    " read), too_large, vanished, unreadable, undeletable.",
    ("outcome",),
)
