"""Fleet overview: every server and model at a glance."""

from __future__ import annotations

from typing import Any

from grafana.frame import framed
from grafana.panels import (
    Query,
    columns,
    good_above,
    good_below,
    latest,
    number,
    quotient,
    rate,
    series,
)
from grafana.slo import BUDGET_LEFT, BUDGET_STEPS
from grafana.tables import rows


def build() -> Any:
    """The dashboard."""
    return framed(
        "fleet",
        "Fleet overview",
        "Every watched Triton: is it up, does it serve, how much traffic does it have. Start"
        " here; the other dashboards show why.",
        ("Now", _now()),
        ("Traffic", _traffic()),
        ("Servers and models", _tables()),
    )


def _now() -> list[Any]:
    return [
        number(
            "Servers up",
            "Share of the selected servers that answer (triton_up).",
            "percentunit",
            Query("avg(triton_up<s>)"),
            steps=good_above(0.5, 1),
            alerts=["TritonDown"],
        ),
        number(
            "Models serving",
            "Share of model versions that answer real inference requests, whatever "
            "their readiness (triton_model_serving).",
            "percentunit",
            Query("avg(triton_model_serving<v>)"),
            steps=good_above(0.5, 1),
        ),
        number(
            "Ready but not serving",
            "Model versions that the server reports as ready but that answer no "
            "inference request: the readiness is wrong.",
            "short",
            Query(
                "sum((triton_model_ready<v> == bool 1) * on (job, instance, model,"
                " version) (triton_model_serving<v> == bool 0))"
            ),
            steps=good_below(1, 1),
            alerts=["TritonReadinessLie", "TritonModelServingUnproven"],
        ),
        number(
            "Request rate",
            "Production requests per second, without our own probes.",
            "reqps",
            rate("triton_requests_total<v>"),
        ),
        number(
            "Failed requests",
            "Share of production requests that failed.",
            "percentunit",
            quotient(
                'triton_requests_total<v,outcome!="success">',
                "triton_requests_total<v>",
            ),
            steps=good_below(0.001, 0.01),
            no_value="no traffic",
        ),
        number(
            "Lowest error budget left",
            "Of all objectives; at 0 % an objective is missed. The dashboard SLO and budget"
            " shows how many times the budget was spent.",
            "percentunit",
            Query(f"min({BUDGET_LEFT})"),
            steps=BUDGET_STEPS,
            no_value="no SLO",
        ),
    ]


def _traffic() -> list[Any]:
    return [
        series(
            "Request rate by model",
            "Production requests per second, without our own probes.",
            "reqps",
            rate("triton_requests_total<v>", "model"),
        ),
        series(
            "Failed requests by model",
            "Failed production requests per second, by outcome. Triton 2.51 counts "
            "error answers of a Python backend as successes.",
            "reqps",
            rate('triton_requests_total<v,outcome!="success">', "model, outcome"),
        ),
        series(
            "Failures seen by clients",
            "Requests per second that a proxy in front of Triton answered with an "
            "error, from its access log or mirrored answers. Turn it on with `kind: "
            "access_log`.",
            "reqps",
            rate('triton_client_requests_total<v,outcome="failure">', "model, source"),
            alerts=["TritonClientsSeeFailures"],
        ),
        series(
            "Resident memory by process",
            "Memory of the server and of each model's Python backend, if the sidecar "
            "runs on the same machine and can see the processes.",
            "bytes",
            latest(
                "sum",
                "triton_process_resident_memory_bytes<s>",
                "instance, process, model",
            ),
        ),
        series(
            "Mean queue time",
            "Mean time that a production request waits for a model instance, over "
            "all replicas. It rises before latency does.",
            "s",
            quotient(
                "triton_model_queue_seconds_total<v>",
                "triton_requests_total<v>",
                "model",
            ),
        ),
        series(
            "Pending requests",
            "Requests that are waiting for a model instance now, including our own.",
            "short",
            latest("sum", "triton_pending_requests<v>", "model"),
        ),
        series(
            "Busy model instances",
            "Seconds of model execution a second, over all instances: 1 is one instance"
            " that is always busy.",
            "short",
            rate("triton_model_busy_seconds_total<v>", "model"),
        ),
    ]


def _tables() -> list[Any]:
    return [
        rows(
            "Servers",
            "Each server with its version and state.",
            "none",
            latest("max", "triton_up<s>", "instance", legend="up"),
            latest("max", "triton_ready<s>", "instance", legend="ready"),
            rate("triton_requests_total<s>", "instance", legend="requests/s"),
            span=12,
            yes_no=("up", "ready"),
            steps=good_above(0.5, 1),
            colored=("up", "ready"),
            alerts=["TritonNotReady"],
        ),
        rows(
            "Model versions",
            "Ready is reported by the server; serving is measured with an inference "
            "request.",
            "none",
            *columns(
                "min",
                "instance, model, version",
                {
                    "ready": "triton_model_ready<v>",
                    "serving": "triton_model_serving<v>",
                },
            ),
            span=12,
            yes_no=("ready", "serving"),
            steps=good_above(0.5, 1),
            alerts=["TritonModelGone"],
        ),
    ]
