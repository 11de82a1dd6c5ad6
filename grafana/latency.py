"""Model latency: the true tail, with its error bar, and where the time goes."""

from __future__ import annotations

from typing import Any

from exporter.catalogue.probe_outcomes import NOT_FAILED
from exporter.histograms import histogram_promql
from grafana.frame import framed
from grafana.latency_queries import BAND, fleet_quantiles, p99_of_replicas
from grafana.panels import (
    Query,
    good_below,
    heat,
    only_above_zero,
    quotient,
    rate,
    series,
)


def build() -> Any:
    """The dashboard."""
    return framed(
        "latency",
        "Model latency",
        "Latency of production requests from Triton's traces, and of our own probes. A"
        " quantile that too few requests support is absent, not guessed.",
        ("Production", _production()),
        ("Where the time goes", _phases()),
        ("Our probes", _probes()),
    )


def _production() -> list[Any]:
    metric, window = "triton_request_duration_seconds", "$__rate_interval"
    return [
        heat(
            "Latency of production requests",
            "Requests per second by latency bucket, over all selected replicas.",
            "s",
            Query(
                histogram_promql.buckets(metric, window, where="<v>"),
                "{{le}}",
                exemplars=True,
            ),
        ),
        series(
            "Latency quantiles of the fleet",
            "From histograms summed over replicas: within 1.1 % with native histograms,"
            " else as fine as the classic buckets.",
            "s",
            *fleet_quantiles(metric),
            alerts=["TritonTailLatency"],
        ),
        series(
            "p99 of each replica with its 95 % interval",
            "The sidecar's own quantile (within 1.1 %) and the interval of what the "
            "next window would show: a wide band means few or correlated requests, "
            "no band too few effective samples.",
            "s",
            *p99_of_replicas("triton_request_latency"),
            band=BAND,
        ),
        series(
            "Effective samples behind the p99",
            "Number of independent requests that are equivalent to the traced ones "
            "in the window. The interval needs 368; 0: the correlation cannot be "
            "measured yet.",
            "short",
            Query(
                'triton_request_latency_effective_samples<v,quantile="0.99">',
                "{{instance}} {{model}}",
            ),
        ),
    ]


def _phases() -> list[Any]:
    phase, window = "triton_request_phase_duration_seconds", "$__rate_interval"
    return [
        series(
            "Mean time in each phase",
            "From the first byte to the last: network in, queue, compute input, infer,"
            " output, network out. The phases add up to the request.",
            "s",
            Query(
                histogram_promql.mean(phase, window, "phase", where="<v>"),
                "{{phase}}",
            ),
            stacked=True,
        ),
        series(
            "p99 of each phase",
            "Over all selected replicas. They do not add up: a request is rarely "
            "slow in every phase.",
            "s",
            Query(
                histogram_promql.quantile(0.99, phase, window, "phase", where="<v>"),
                "{{phase}}",
            ),
        ),
        series(
            "Share of time in the queue",
            "Queue time divided by request time, from Triton's statistics. Above one "
            "half, requests wait longer than they are processed.",
            "percentunit",
            quotient(
                "triton_model_queue_seconds_total<v>",
                "triton_model_request_seconds_total<v>",
                "model",
            ),
            most=1,
            steps=good_below(0.25, 0.5),
            alerts=["TritonQueueGrowth"],
        ),
        series(
            "Batch size",
            "Mean number of rows per execution, which shows the effect of dynamic "
            "batching.",
            "short",
            quotient(
                "triton_inferences_total<v>", "triton_executions_total<v>", "model"
            ),
        ),
        series(
            "Mean execution time",
            "Busy time of an execution, from Triton's statistics, which need no traces.",
            "s",
            quotient(
                "triton_model_busy_seconds_total<v>",
                "triton_executions_total<v>",
                "model",
            ),
        ),
    ]


def _probes() -> list[Any]:
    return [
        series(
            "Probe latency, p50 and p99",
            "Latency of our own synthetic requests: a lower bound of the latency of "
            "clients, also available without production traffic.",
            "s",
            *(
                Query(
                    f'triton_probe_latency_seconds<v,quantile="{q}">',
                    f"{{{{model}}}} {{{{protocol}}}} p{name}",
                )
                for q, name in (("0.5", "50"), ("0.99", "99"))
            ),
        ),
        series(
            "Failed probes",
            "By outcome: timeout, unavailable, invalid, model_error, bad_output (NaN, Inf, empty, all"
            " zero where configured), stalled (a stream beyond its limits).",
            "cps",
            only_above_zero(
                rate(
                    f'triton_probe_total<v,outcome!~"{NOT_FAILED}">',
                    "model, protocol, outcome",
                )
            ),
            no_value="No probe failed",
            alerts=["TritonProbesFailing"],
        ),
    ]
