"""SLO and budget: how fast the error budget burns and what is left."""

from __future__ import annotations

from typing import Any, Final

from grafana.frame import framed
from grafana.panels import Query, Step, good_above, latest, quotient, rate, series
from grafana.tables import rows

_PAGE, _TICKET = 14.4, 1.0
# Prometheus remembers the whole window, with the rules of `tritonwatch rules`; a sidecar only
# what it has seen since it started.
_REMAINING: Final = (
    "(slo:error_budget_remaining:ratio<f> or min by (cluster, namespace, job, slo)"
    " (triton_slo_error_budget_remaining_ratio<s>))"
)
# An overspent budget is 0 %, not -9323 %; BUDGET_SPENT is then 94 times.
BUDGET_LEFT: Final = f"clamp_min({_REMAINING}, 0)"
BUDGET_SPENT: Final = f"1 - {_REMAINING}"
BUDGET_STEPS: Final = good_above(0.0005, 0.25)  # red where it reads 0 %


def build() -> Any:
    """The dashboard."""
    return framed(
        "slo",
        "SLO and budget",
        "Objectives of the configuration: good and bad events, burn rates over the"
        " windows of the multi-window alerts, and the budget left.",
        ("Objectives", _objectives()),
        ("Burn rate", _burn()),
        by_model="",
    )


def _objectives() -> list[Any]:
    return [
        rows(
            "Objectives",
            "The objective, and its error budget: what is left, and how many times it was"
            " spent (2: twice the bad events that it allows). Over the objective's window"
            " with the rules that `tritonwatch rules` writes; without them only since the"
            " worst sidecar started.",
            "percentunit",
            latest("min", "triton_slo_objective_ratio<s>", "slo", legend="objective"),
            latest("min", BUDGET_LEFT, "slo", legend="lowest budget left"),
            latest("max", BUDGET_SPENT, "slo", legend="times budget spent"),
            steps=BUDGET_STEPS,
            colored=("lowest budget left",),
            plain=("times budget spent",),
        ),
        series(
            "Error budget left",
            "At 0 % the objective is missed. Over the objective's window with the rules that"
            " `tritonwatch rules` writes; without them only since the worst sidecar started.",
            "percentunit",
            Query(BUDGET_LEFT, "{{job}} {{slo}}"),
            most=1,
            steps=BUDGET_STEPS,
        ),
        series(
            "Share of bad events",
            "Bad events as a share of all, over the fleet.",
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
            "Burn rate over 1 h and 6 h",
            "1 spends the budget in exactly the objective's window; a page needs 14.4"
            " over 1 h (and 5 min), or 6 over 6 h (and 30 min).",
            "short",
            latest("max", 'triton_slo_burn_rate<s,window=~"1h|6h">', "slo, window"),
            steps=steps,
            alerts=["TritonSLOBurnPage", "TritonSLOBurnTicket"],
        ),
        series(
            "Events by outcome",
            "Good and bad events per second, over the fleet.",
            "cps",
            rate("triton_slo_events_total<s>", "slo, outcome"),
            stacked=True,
        ),
    ]
