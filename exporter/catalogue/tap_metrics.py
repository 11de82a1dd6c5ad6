"""Metrics of the taps: received traces and mirrored production requests."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

TAP_REQUESTS: Final = MetricSpec(
    "tritonwatch_tap_requests_total",
    "Requests to a tap by source (otlp, http, grpc, openai, cloudevents) and"
    " outcome. accepted: read. sampled_out, unwanted (no collector uses the model),"
    " unknown_model, own: skipped. malformed, too_large, unsupported, timeout,"
    " overloaded, aborted and, over gRPC, too_large_or_aborted (gRPC does not"
    " distinguish them): refused.",
    ("source", "outcome"),
)
TAP_SAMPLES: Final = MetricSpec(
    "tritonwatch_tap_samples_total",
    "Mirrored requests and responses (direction) passed to drift windows and"
    " comparisons, by model and tap.",
    ("model", "source", "direction"),
)
ACCESS_LOG_LINES: Final = MetricSpec(
    "tritonwatch_access_log_lines_total",
    "Lines of the access logs by outcome: counted, own, other (no inference"
    " request of KServe's protocol), unknown_model, malformed, too_long.",
    ("outcome",),
)
ACCESS_LOG_TRUNCATIONS: Final = MetricSpec(
    "tritonwatch_access_log_truncations_total",
    "Times an access log had become shorter: lines written between the previous"
    " poll and the truncation are not counted.",
)
ADMISSION_CONNECTIONS: Final = MetricSpec(
    "tritonwatch_admission_connections",
    "Open connections by listener: web (metrics and pages), tap, grpc.",
    ("listener",),
)
ADMISSION_LIMIT: Final = MetricSpec(
    "tritonwatch_admission_limit",
    "Maximum number of connections of the listener.",
    ("listener",),
)
ADMISSION_REFUSED: Final = MetricSpec(
    "tritonwatch_admission_refused_total",
    "Connections and requests refused, by listener and reason: crowded (the"
    " listener was full, and the connection that had waited longest was closed),"
    " calls (too many gRPC calls waited for their message, and the oldest of the"
    " address with most calls was ended), bytes (waiting bodies or messages of the"
    " sender's address exceed its share), descriptors (no file descriptor left),"
    " handshake (TLS failed or took too long), passwords (too many are waiting to be"
    " checked), probes (as many /probe requests are being answered as"
    " multi_target.max_concurrent permits the address), cross_site (sent by a web"
    " page of another site, or to a host name that is not allowed), memory (resident"
    " memory exceeds tritonwatch_admission_memory_limit_bytes).",
    ("listener", "reason"),
)
ADMISSION_MEMORY_LIMIT: Final = MetricSpec(
    "tritonwatch_admission_memory_limit_bytes",
    "Resident memory above which taps refuse requests: the lower of"
    " listen.memory_bytes and three quarters of the control group's limit.",
)
