"""Load and chaos runs: what was done to the server, and what it did."""

from __future__ import annotations

from typing import Any

from exporter.histograms import histogram_promql
from grafana.frame import framed
from grafana.panels import (
    HEIGHT,
    Query,
    good_above,
    heat,
    latest,
    number,
    only_above_zero,
    rate,
    series,
)
from grafana.tables import rows


def build() -> Any:
    """The dashboard."""
    return framed(
        "runs",
        "Load and chaos runs",
        "Load and chaos runs that report to the sidecar, with the behaviour of the "
        "server meanwhile, and measured capacities.",
        ("Runs", _runs()),
        ("Meanwhile", _meanwhile()),
        ("Capacity", _capacity()),
    )


def _runs() -> list[Any]:
    return [
        rows(
            "Active runs",
            "Load and chaos runs and their phase.",
            "none",
            latest(
                "max",
                "triton_run_info<s>",
                "run, kind, profile, phase",
                legend="active",
            ),
            span=12,
            yes_no=("active",),
        ),
        series(
            "Phases of runs",
            "1 while a run is in the phase.",
            "short",
            latest(
                "max",
                "triton_run_info<s>",
                "run, kind, phase",
                legend="{{kind}} {{run}} {{phase}}",
            ),
        ),
    ]


def _meanwhile() -> list[Any]:
    return [
        heat(
            "Latency of production requests",
            "Load runs count as production; our own probes are excluded.",
            "s",
            Query(
                histogram_promql.buckets(
                    "triton_request_duration_seconds", "$__rate_interval", where="<v>"
                ),
                "{{le}}",
            ),
        ),
        series(
            "Requests by outcome",
            "Requests per second, over all selected models.",
            "reqps",
            rate("triton_requests_total<v>", "outcome"),
            stacked=True,
        ),
        series(
            "Probes by outcome",
            "Shows whether models still answer inference requests during the run; "
            "outcomes that do not occur are left out.",
            "cps",
            only_above_zero(rate("triton_probe_total<v>", "outcome")),
            stacked=True,
        ),
    ]


def _capacity() -> list[Any]:
    return [
        number(
            "Lowest headroom",
            "Remaining share of the measured capacity at the current rate of "
            "production.",
            "percentunit",
            Query("min(triton_capacity_headroom_ratio<m>)"),
            span=12,
            steps=good_above(0, 0.2),
            no_value="no search",
            alerts=["TritonHeadroomGone", "TritonHeadroomLow"],
        ).height(HEIGHT),
        series(
            "Capacity with its interval, and request rate",
            "The highest rate that met the objective, and the current rate.",
            "reqps",
            *(
                Query(
                    "max by (model, slo) (triton_capacity_requests_per_second"
                    f'<m,bound="{bound}">)',
                    f"{{{{model}}}} {{{{slo}}}}{shown}",
                )
                for bound, shown in (
                    ("estimate", ""),
                    ("low", " low"),
                    ("high", " high"),
                )
            ),
            rate("triton_requests_total<m>", "model", legend="{{model}} now"),
            band=("/ low$/", "/ high$/"),
        ),
        rows(
            "Latest capacity searches",
            "Only a valid search changes the capacity. The age is that of the "
            "capacity.",
            "s",
            Query(
                "time() - max by (model, slo)"
                " (triton_capacity_found_timestamp_seconds<m>)",
                "age of the capacity",
            ),
            latest(
                "max",
                "triton_capacity_search_info<m>",
                "model, slo, verdict, reason",
                legend="searches",
            ),
            hidden=("searches",),
        ),
    ]
