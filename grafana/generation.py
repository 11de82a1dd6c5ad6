"""Generation: streamed answers, tokens, and the backends that make them."""

from __future__ import annotations

from typing import Any

from exporter.histograms import histogram_promql
from grafana.frame import framed
from grafana.latency_queries import BAND, fleet_quantiles, p99_of_replicas
from grafana.panels import Query, latest, quotient, rate, series


def build() -> Any:
    """The dashboard."""
    return framed(
        "generation",
        "Generation",
        "Models that answer piece by piece: how long a person waits for the first piece and"
        " from each to the next, what tokens cost, and how full the backend is.",
        ("Streamed answers", _answers()),
        ("Tokens", _tokens()),
        ("Inside the backend", _backends()),
    )


def _answers() -> list[Any]:
    return [
        series(
            "Time to the first response, over the fleet",
            "From a request's arrival to its first response, of decoupled models: what a"
            " person who reads along waits for. From histograms summed over replicas.",
            "s",
            *fleet_quantiles("triton_request_first_response_seconds"),
        ),
        series(
            "Time between responses, over the fleet",
            "Every gap between two responses of a request: a request with many responses"
            " counts more.",
            "s",
            *fleet_quantiles("triton_request_response_gap_seconds"),
        ),
        series(
            "p99 of the first response of each replica, with its 95 % interval",
            "The sidecar's own quantile (within 1.1 %) and the interval of what the next"
            " window would show.",
            "s",
            *p99_of_replicas("triton_request_first_response_latency"),
            band=BAND,
        ),
        series(
            "p99 between responses of each replica, with its 95 % interval",
            "Gaps of one request depend on each other, which widens the interval. Absent"
            " where too few requests support it.",
            "s",
            *p99_of_replicas("triton_request_response_gap_latency"),
            band=BAND,
        ),
        series(
            "First response and gaps of the probes, p95",
            "Measured from outside, with requests of our own: also where no production is"
            " traced. A first response that takes long here while production's does not is"
            " the way to the server.",
            "s",
            *(
                Query(
                    histogram_promql.quantile(
                        0.95, histogram, "$__rate_interval", "model", where="<v>"
                    ),
                    f"{{{{model}}}} {said}",
                )
                for histogram, said in (
                    ("triton_probe_first_response_seconds", "first response"),
                    ("triton_probe_response_gap_seconds", "gap"),
                )
            ),
        ),
        series(
            "Goodput",
            "Share of requests that met all limits of a name at once (`limits` of the"
            " collector `traces`).",
            "percentunit",
            quotient(
                'triton_request_goodput_total<v,outcome="met">',
                "triton_request_goodput_total<v>",
                "model, limits",
            ),
            most=1,
        ),
        series(
            "Responses per request",
            "Mean number: shorter answers are faster ones, and a fall may be requests that"
            " were cancelled or failed, which traces do not distinguish.",
            "short",
            Query(
                histogram_promql.mean(
                    "triton_request_responses", "$__rate_interval", "model", where="<v>"
                ),
                "{{model}}",
            ),
        ),
    ]


def _tokens() -> list[Any]:
    return [
        series(
            "Tokens per second",
            "Production's, of the best source there is: metrics of the backend, responses of"
            " traced requests, or a configured estimate.",
            "short",
            rate("triton_tokens_total<v>", "model, direction, source"),
        ),
        series(
            "Time per output token",
            "Mean of each request's mean after its first token, of models whose responses"
            " are one token each (`token_responses`).",
            "s",
            Query(
                histogram_promql.mean(
                    "triton_request_time_per_output_token_seconds",
                    "$__rate_interval",
                    "model",
                    where="<v>",
                ),
                "{{model}}",
            ),
        ),
        series(
            "Energy of 1,000 output tokens",
            "All of the model's energy over its output tokens. Active: what they took. Full:"
            " with its part of idle power.",
            "joule",
            latest(
                "avg", "1000 * triton_token_energy_joules<v>", "model, boundary, basis"
            ),
        ),
        series(
            "Cost of 1,000 output tokens",
            "By the prices of the configuration. Active: what they took. Full: with their"
            " part of what stood idle.",
            "short",
            latest(
                "avg",
                "triton_model_cost_per_thousand_tokens<v>",
                "model, currency, basis",
            ),
        ),
        series(
            "Carbon of 1,000 output tokens",
            "Grams of CO2 equivalent, by the grid's intensity and the PUE.",
            "massg",
            latest(
                "avg",
                "triton_model_carbon_per_thousand_tokens_grams<v>",
                "model, basis",
            ),
        ),
    ]


def _backends() -> list[Any]:
    return [
        series(
            "Requests inside the backend",
            "Backends with a batch of their own queue inside: Triton's queue is empty then.",
            "short",
            latest(
                "sum", "triton_backend_requests_running<v>", "model", "{{model}} runs"
            ),
            latest(
                "sum", "triton_backend_requests_waiting<v>", "model", "{{model}} waits"
            ),
            alerts=["TritonEngineQueue"],
        ),
        series(
            "KV cache in use",
            "The fullest of the chosen replicas. Once it is full, requests wait or start"
            " over.",
            "percentunit",
            latest("max", "triton_backend_kv_cache_usage_ratio<v>", "model"),
            most=1,
            alerts=["TritonKvCacheFull"],
        ),
        series(
            "Preempted requests",
            "The backend put them out of the KV cache to make room for others.",
            "cps",
            rate("triton_backend_preemptions_total<v>", "model"),
            alerts=["TritonPreemptionsRising"],
        ),
        series(
            "Prefix cache hits",
            "Prompt tokens found there, of those looked up: they need not be computed again.",
            "percentunit",
            quotient(
                "triton_backend_prefix_cache_hits_total<v>",
                "triton_backend_prefix_cache_queries_total<v>",
                "model",
            ),
            most=1,
        ),
    ]
