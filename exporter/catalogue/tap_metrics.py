"""Metrics of the taps: received traces and mirrored production requests."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

TAP_REQUESTS: Final = MetricSpec(
    "tritonwatch_tap_requests_total",
    "Requests to a tap by source (otlp, http, grpc, cloudevents, traces) and outcome:"
    " accepted; sampled_out, unwanted (nobody looks at that model), unknown_model and own"
    " are passed over; malformed, too_large, unsupported, timeout, overloaded,"
    " aborted and, over gRPC, too_large_or_aborted (its core tells no difference) are"
    " not taken. For otlp_forward: forwarded, failed, dropped.",
    ("source", "outcome"),
)
TAP_SAMPLES: Final = MetricSpec(
    "tritonwatch_tap_samples_total",
    "Mirrored requests and responses (direction) that were handed to drift windows and"
    " comparisons, by model and the tap they came by.",
    ("model", "source", "direction"),
)
ACCESS_LOG_LINES: Final = MetricSpec(
    "tritonwatch_access_log_lines_total",
    "Lines of the access logs by outcome: counted, own, other (no inference request),"
    " unknown_model, malformed, too_long.",
    ("outcome",),
)
ACCESS_LOG_TRUNCATIONS: Final = MetricSpec(
    "tritonwatch_access_log_truncations_total",
    "Times an access log was found shorter than before: lines written between the poll"
    " before and the truncation are not counted.",
)
TRACE_TENSORS_REFUSED: Final = MetricSpec(
    "tritonwatch_trace_tensors_refused_total",
    "Tensors in trace files that cannot be read back, by datatype and reason: Triton"
    " writes FP16 and BF16 empty, INT8 and UINT8 as raw characters, BYTES unescaped.",
    ("datatype", "reason"),
)
ADMISSION_CONNECTIONS: Final = MetricSpec(
    "tritonwatch_admission_connections",
    "Connections open now, by listener: web (metrics and pages), tap, grpc.",
    ("listener",),
)
ADMISSION_LIMIT: Final = MetricSpec(
    "tritonwatch_admission_limit",
    "Connections that the listener takes at once.",
    ("listener",),
)
ADMISSION_REFUSED: Final = MetricSpec(
    "tritonwatch_admission_refused_total",
    "Connections and requests turned away by listener and reason: crowded (the listener"
    " was full, and the connection that had waited longest was ended), calls (as many"
    " gRPC calls waited for their message as may, and the one that had waited longest was"
    " ended, of the address with most), bytes (bodies or messages of the sender's address that"
    " wait to be read take more than they leave free), descriptors (the process has no"
    " file descriptor left), handshake (TLS failed or took too long),"
    " passwords (too many wait to be checked), cross_site (sent by a web page of another"
    " site, or to a host name that may be one's), memory (more is resident than tritonwatch_admission_memory_limit_bytes).",
    ("listener", "reason"),
)
ADMISSION_MEMORY_LIMIT: Final = MetricSpec(
    "tritonwatch_admission_memory_limit_bytes",
    "Resident memory above which taps refuse what they are sent: the lower of"
    " listen.memory_bytes and three quarters of the control group's limit.",
)
