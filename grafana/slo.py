"""SLO and budget: how fast the error budget burns and what is left."""

from __future__ import annotations

from typing import Any

from grafana.frame import framed
from grafana.panels import Query, Step, good_above, latest, quotient, rate, rows, series

_PAGE, _TICKET = 14.4, 1.0


def build() -> Any:
    """The dashboard."""
    return framed(
        "slo",
        "SLO and budget",
        "Objectives of the configuration: good and bad events, burn rates over the"
        " windows of the multi-window alerts, and the budget left.",
        ("Objectives", _objectives()),
        ("Burn", _burn()),
        by_model="",
    )


def _objectives() -> list[Any]:
    return [
        rows(
            "Objectives",
            "Objective and remaining error budget.",
            "percentunit",
            latest("min", "triton_slo_objective_ratio<s>", "slo", legend="objective"),
            latest(
                "min",
                "triton_slo_error_budget_remaining_ratio<s>",
                "slo",
                legend="least budget left",
            ),
            steps=good_above(0, 0.25),
        ),
        series(
            "Error budget left",
            "By sidecar, over the window of the objective. Below 0 the objective is "
            "missed.",
            "percentunit",
            Query("triton_slo_error_budget_remaining_ratio<s>", "{{instance}} {{slo}}"),
            least=None,
            most=1,
            steps=good_above(0, 0.25),
        ),
        series(
            "Bad events",
            "Share of all events, over the fleet.",
            "percentunit",
            quotient(
                'triton_slo_events_total<s,outcome="bad">',
                "triton_slo_events_total<s>",
                "slo",
            ),
        ),
    ]


def _burn() -> list[Any]:
    steps = (Step(None, "green"), Step(_TICKET, "yellow"), Step(_PAGE, "red"))
    return [
        series(
            "Burn rate by window",
            "At 1 the budget lasts exactly the objective's window. A page needs 14.4 "
            "over 1 h and 5 min, or 6 over 6 h and 30 min.",
            "short",
            latest("max", "triton_slo_burn_rate<s>", "slo, window"),
            steps=steps,
            alerts=["TritonSLOBurnPage", "TritonSLOBurnTicket"],
        ),
        series(
            "Events",
            "Good and bad events per second, over the fleet.",
            "cps",
            rate("triton_slo_events_total<s>", "slo, outcome"),
            stacked=True,
        ),
    ]
