"""Metrics of load and chaos runs, and of the capacities they found."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

RUN_INFO: Final = MetricSpec(
    "triton_run_info",
    "An active load or chaos run and its phase, always 1, for annotations. Absent"
    " after the run ended or stopped reporting.",
    ("run", "kind", "profile", "phase"),
)
CAPACITY: Final = MetricSpec(
    "triton_capacity_requests_per_second",
    "Highest rate at which the model met the objective, from the latest valid"
    " capacity search: the estimate and its 95 % interval. A search without a valid"
    " result does not change it; a search in which no rate met the objective removes"
    " it.",
    ("model", "slo", "bound"),
)
CAPACITY_EFFECTIVE: Final = MetricSpec(
    "triton_capacity_effective_requests",
    "Number of independent requests that would give"
    " triton_capacity_requests_per_second an interval of the same width: requests that"
    " wait in the same queue count less. Absent where the report has none.",
    ("model", "slo"),
)
CAPACITY_FOUND: Final = MetricSpec(
    "triton_capacity_found_timestamp_seconds",
    "Unix time at which the search behind triton_capacity_requests_per_second ended.",
    ("model", "slo"),
)
CAPACITY_SEARCH: Final = MetricSpec(
    "triton_capacity_search_info",
    "The latest capacity search, always 1. `verdict` is valid, invalid,"
    " no_rate_holds or every_rate_holds; `reason` is why no capacity was published.",
    ("model", "slo", "verdict", "reason"),
)
CAPACITY_HEADROOM: Final = MetricSpec(
    "triton_capacity_headroom_ratio",
    "1 minus the current rate of production divided by the estimated capacity;"
    " negative if production exceeds it. Absent while the rate of production is"
    " unknown.",
    ("model", "slo"),
)
