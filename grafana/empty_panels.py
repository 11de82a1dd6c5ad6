"""The words of a panel without data: how to turn on what it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_METRIC: Final = re.compile(r"\b(?:triton\w+|process_\w+|ALERTS)\b")
_HINTS: Final = (
    (r"triton_power_sensor_fault", "No power sensor has a fault"),
    (
        r"triton_schema_violations",
        "No violation: mirrored requests fit their references, or none is given under `drift:`",
    ),
    (
        r"triton_backend_(preemptions|prefix)",
        "The backend does not report it: vLLM's does, on Triton's metrics page",
    ),
    (
        r"triton_model_(load|first_inference|cold_inference)_seconds",
        "No model was loaded meanwhile; a collector of kind: cold_start measures it",
    ),
    (r"triton_comparison", "No comparison: describe one under `comparisons:`"),
    (
        r"triton_(estimated_accuracy|output)",
        (
            "No answers are evaluated: add a collector of kind: outputs, and mirror requests to "
            "the tap"
        ),
    ),
    (r"triton_golden", "No golden data: add a probe of kind: golden"),
    (r"triton_spc", "No control charts: add a collector of kind: spc"),
    (
        r"triton(watch)?_(model_)?drift|triton_(feature|retrain|schema)",
        "No data are watched: describe their reference under `drift:`",
    ),
    (r"triton_slo", "No objectives: describe them under `slos:`"),
    (
        r"triton_capacity",
        (
            "No capacity is known: run `tritonwatch load capacity --sidecar URL`, or name its "
            "reports in a collector of kind: runs"
        ),
    ),
    (r"triton_run_info", "No runs: give --sidecar URL to load and chaos runs"),
    (
        r"triton_request_goodput",
        "No limits: give them as `limits` of the collector of kind: traces",
    ),
    (
        r"triton_(tokens|token_energy|backend)|triton_\w+(thousand_tokens|output_token)",
        (
            "No tokens are reported: by a backend like vLLM, or as `token_responses` of the "
            "collector of kind: traces"
        ),
    ),
    (
        r"triton_(model|overhead)_(cost|carbon)",
        "No prices: give them under `cost:`",
    ),
    (
        r"triton_model_flops",
        "Needs a GPU, and the work of an inference: give it under `cost:`, models",
    ),
    (r"triton_(gpu|mig)", "No GPU was found on the machines of these sidecars"),
    (
        r"triton_\w*(energy|power|per_watt)",
        "No power source was found: name one under `power:`",
    ),
    (
        r"triton_(request_(duration|first|latency|phase|response)|trace)|tritonwatch_trace",
        (
            "No traces: add a collector of kind: traces, and start Triton with the flags in "
            "docs/production-latency.md"
        ),
    ),
    (
        r"triton_client_requests|tritonwatch_access_log",
        "No access log is read: add a collector of kind: access_log",
    ),
    (r"tritonwatch_(tap|admission)", "Nothing was sent to the taps yet"),
    (r"tritonwatch_otlp", "Nothing is pushed: see `otlp:`"),
    (
        r"tritonwatch_watcher",
        "No other sidecars are named: `watchers` of kind: statistics",
    ),
    (
        r"ALERTS",
        "No alert fires, or Prometheus has no rules: see deploy/prometheus/rules",
    ),
    (
        r"triton_(requests|inferences|executions|batch|pending|response_cache|own|unattributed)",
        "No requests were counted yet",
    ),
)
_NONE: Final = "No sidecar of this selection is scraped, or it has nothing to report"


def hint(expressions: Iterable[str]) -> str:
    """Return how to turn on what a panel with these queries shows."""
    for expression in expressions:
        for metric in _METRIC.findall(expression):
            for pattern, text in _HINTS:
                if re.match(pattern, metric):
                    return text
    return _NONE
