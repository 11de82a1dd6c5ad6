"""Service level objectives."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

SLO_OBJECTIVE: Final = MetricSpec(
    "triton_slo_objective_ratio",
    "Share of events that must be good, as configured.",
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
    "Share of bad events over the share allowed, in the window before now as this"
    " process saw it; 1 uses the budget up just at the end of the objective's window."
    " Absent without events.",
    ("slo", "window"),
)
SLO_BUDGET: Final = MetricSpec(
    "triton_slo_error_budget_remaining_ratio",
    "What is left of the error budget of the objective's window, as this process saw"
    " it: 1 untouched, 0 used up, below 0 overdrawn.",
    ("slo",),
)
SLO_DOUBTFUL: Final = MetricSpec(
    "triton_slo_doubtful",
    "1 while triton_request_outcomes_doubtful is 1 for one of the objective's models, so"
    " that bad events are among the good ones; of objectives on production's requests.",
    ("slo",),
)
