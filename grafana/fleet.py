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
    rows,
    series,
)

_YES_NO = {"1": "yes", "0": "no"}


def build() -> Any:
    """The dashboard."""
    return framed(
        "fleet",
        "Fleet overview",
        "Every Triton that a tritonwatch looks at: is it there, does it really serve, how"
        " much does it do, and how slow is it. Start here; the other dashboards say why.",
        ("Now", _now()),
        ("Traffic", _traffic()),
        ("Servers and models", _tables()),
    )


def _now() -> list[Any]:
    return [
        number(
            "Servers up",
            "Share of the chosen servers that answer at all (triton_up).",
            "percentunit",
            Query("avg(triton_up<s>)"),
            steps=good_above(0.5, 1),
            alerts=["TritonDown"],
        ),
        number(
            "Models serving",
            "Share of model versions through which a tensor really goes, whatever the"
            " server says of its readiness (triton_model_serving).",
            "percentunit",
            Query("avg(triton_model_serving<v>)"),
            steps=good_above(0.5, 1),
        ),
        number(
            "Ready but not serving",
            "Model versions that the server calls ready and that answer no tensor: the"
            " server's readiness is wrong.",
            "short",
            Query(
                "sum((triton_model_ready<v> == bool 1) * on (job, instance, model,"
                " version) (triton_model_serving<v> == bool 0))"
            ),
            steps=good_below(1, 1),
            alerts=["TritonReadinessLie", "TritonModelServingUnproven"],
        ),
        number(
            "Requests",
            "Production requests a second, our own probes left out.",
            "reqps",
            rate("triton_requests_total<v>"),
        ),
        number(
            "Failing",
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
            "Least error budget",
            "What is left of the error budget that is nearest to its end.",
            "percentunit",
            Query("min(triton_slo_error_budget_remaining_ratio<s>)"),
            steps=good_above(0, 0.25),
            no_value="no SLO",
        ),
    ]


def _traffic() -> list[Any]:
    return [
        series(
            "Requests by model",
            "Production requests a second, our own probes left out.",
            "reqps",
            rate("triton_requests_total<v>", "model"),
        ),
        series(
            "Failures by model",
            "Production requests a second that did not succeed, by outcome. A Python"
            " backend that answers with an error is counted as success by Triton 2.51.",
            "reqps",
            rate('triton_requests_total<v,outcome!="success">', "model, outcome"),
        ),
        series(
            "Failures that clients see",
            "Requests a second that a proxy in front of Triton answered with an error, by its"
            " access log, or by mirrored answers. Turn it on with `kind: access_log`.",
            "reqps",
            rate('triton_client_requests_total<v,outcome="failure">', "model, source"),
            alerts=["TritonClientsSeeFailures"],
        ),
        series(
            "Resident memory by process",
            "Of the server and of each model's Python backend, where the sidecar runs on"
            " the same machine and can see the processes.",
            "bytes",
            latest(
                "sum",
                "triton_process_resident_memory_bytes<s>",
                "instance, process, model",
            ),
        ),
        series(
            "Mean queue time",
            "Seconds a production request waits for a model instance, over all replicas."
            " It rises before latency does.",
            "s",
            quotient(
                "triton_model_queue_seconds_total<v>",
                "triton_requests_total<v>",
                "model",
            ),
        ),
        series(
            "Pending requests",
            "Requests that wait for a model instance at this moment, our own included.",
            "short",
            latest("sum", "triton_pending_requests<v>", "model"),
        ),
        series(
            "Busy",
            "Seconds of model execution a second, over all its instances: 1 is one"
            " instance that never rests.",
            "short",
            rate("triton_model_busy_seconds_total<v>", "model"),
        ),
    ]


def _tables() -> list[Any]:
    return [
        rows(
            "Servers",
            "What each server is and whether it is well.",
            "none",
            latest("max", "triton_up<s>", "instance", legend="up"),
            latest("max", "triton_ready<s>", "instance", legend="ready"),
            rate("triton_requests_total<s>", "instance", legend="requests/s"),
            span=12,
            steps=good_above(0.5, 1),
            alerts=["TritonNotReady"],
        ),
        rows(
            "Model versions",
            "Ready is the server's word, serving is ours: a tensor went through.",
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
            steps=good_above(0.5, 1),
            alerts=["TritonModelGone"],
        ),
    ]
