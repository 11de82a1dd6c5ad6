"""Load and chaos runs, and what they found out about capacity."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

RUN_INFO: Final = MetricSpec(
    "triton_run_info",
    "info",
    "A load or chaos run that goes on now, and its phase: always 1, for annotations."
    " Gone when the run ends, or says no more.",
    ("run", "kind", "profile", "phase"),
)
CAPACITY: Final = MetricSpec(
    "triton_capacity_requests_per_second",
    "gauge",
    "The highest rate at which the model held the objective, as a capacity search found"
    " it: the estimate and its 95 % interval. Absent until one is reported.",
    ("model", "slo", "bound"),
)
CAPACITY_HEADROOM: Final = MetricSpec(
    "triton_capacity_headroom_ratio",
    "gauge",
    "What is left of that capacity: 1 minus production's present rate over the"
    " estimate; below 0 where there is more traffic than was found to be possible."
    " Absent while production's rate is unknown.",
    ("model", "slo"),
    "ratio",
)
