"""Metrics of load and chaos runs, and of the capacities they found."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

RUN_INFO: Final = MetricSpec(
    "triton_run_info",
    "A load or chaos run that goes on now, and its phase: always 1, for annotations."
    " Gone when the run ends, or says no more.",
    ("run", "kind", "profile", "phase"),
)
CAPACITY: Final = MetricSpec(
    "triton_capacity_requests_per_second",
    "The highest rate at which the model held the objective, from the latest valid"
    " capacity search: the estimate and its 95 % interval. A search without a valid"
    " result does not change it; one that found no rate to hold removes it.",
    ("model", "slo", "bound"),
)
CAPACITY_FOUND: Final = MetricSpec(
    "triton_capacity_found_timestamp_seconds",
    "Unix time at which the search ended that triton_capacity_requests_per_second"
    " is of.",
    ("model", "slo"),
)
CAPACITY_SEARCH: Final = MetricSpec(
    "triton_capacity_search_info",
    "The latest capacity search: always 1. `verdict` is valid, invalid,"
    " no_rate_holds or every_rate_holds; `reason` is why it has no capacity to publish.",
    ("model", "slo", "verdict", "reason"),
)
CAPACITY_HEADROOM: Final = MetricSpec(
    "triton_capacity_headroom_ratio",
    "What is left of that capacity: 1 minus production's present rate over the"
    " estimate; below 0 where there is more traffic than was found to be possible."
    " Absent while production's rate is unknown.",
    ("model", "slo"),
)
