"""Service level objectives."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

SLO_OBJECTIVE: Final = MetricSpec(
    "triton_slo_objective_ratio",
    "Configured minimum share of good events.",
    ("slo",),
)
SLO_EVENTS: Final = MetricSpec(
    "triton_slo_events_total",
    "Events of the objective by outcome (good, bad) since this process started. Sum"
    " over replicas before dividing.",
    ("slo", "outcome"),
)
SLO_BURN_RATE: Final = MetricSpec(
    "triton_slo_burn_rate",
    "Share of bad events divided by the allowed share, over the window, as seen by"
    " this process; at 1 the budget is used up exactly at the end of the objective's"
    " window. Absent without events.",
    ("slo", "window"),
)
SLO_BURNING: Final = MetricSpec(
    "triton_slo_burning",
    "1 if triton_slo_burn_rate is over 14.4 in the windows 1h and 5m, with at least two bad"
    " events in the hour, else 0. Absent without events in the hour.",
    ("slo",),
)
SLO_BUDGET: Final = MetricSpec(
    "triton_slo_error_budget_remaining_ratio",
    "Share of the error budget that is left in the objective's window, as seen by"
    " this process: 1 untouched, 0 used up, negative if exceeded. Until this process"
    " has run for a whole window it is that of the time since it started; the rules of"
    " `tritonwatch rules` record the whole window.",
    ("slo",),
)
SLO_DOUBTFUL: Final = MetricSpec(
    "triton_slo_doubtful",
    "1 if triton_request_outcomes_doubtful is 1 for one of the objective's models,"
    " so that bad events may count as good; for objectives on production requests.",
    ("slo",),
)
