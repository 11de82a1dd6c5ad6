"""Generation: streamed answers, tokens, and the backends that make them."""

from __future__ import annotations

from typing import Any, Final

from exporter.histograms import histogram_promql
from grafana.frame import framed
from grafana.latency_queries import BAND, fleet_quantiles, p99_of_replicas
from grafana.panels import Query, latest, quotient, rate, series, weighted

_OUTPUT: Final = 'triton_tokens_total<v,direction="output">'


def build() -> Any:
    """The dashboard."""
    return framed(
        "generation",
        "Generation",
        "Models with streamed answers: time to the first response, time between "
        "responses, cost of tokens, and load of the backend.",
        ("Streamed answers", _answers()),
        ("Tokens", _tokens()),
        ("Inside the backend", _backends()),
    )


def _answers() -> list[Any]:
    return [
        series(
            "Time to the first response, over the fleet",
            "Time from the arrival of a request to its first response, for decoupled "
            "models. From histograms summed over replicas.",
            "s",
            *fleet_quantiles("triton_request_first_response_seconds"),
        ),
        series(
            "Time between responses, over the fleet",
            "All gaps between two responses of a request. A request with many "
            "responses counts more.",
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
            "Gaps of a request are correlated, which widens the interval. Absent "
            "with too few requests.",
            "s",
            *p99_of_replicas("triton_request_response_gap_latency"),
            band=BAND,
        ),
        series(
            "First response and gaps of the probes, p95",
            "Measured with our own requests, so available without traces. If the "
            "first response is slow here but not in production, the connection to "
            "the server is slow.",
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
            "Mean number of responses. Shorter answers are faster. A decrease may be "
            "caused by cancelled or failed requests, which traces do not distinguish.",
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
            "Tokens of production, from the best available source: metrics of the "
            "backend, responses of traced requests, or a configured estimate.",
            "short",
            rate("triton_tokens_total<v>", "model, direction, source"),
        ),
        series(
            "Time per output token",
            "Mean over requests of the mean time per token after the first, for "
            "models whose responses are one token each (`token_responses`).",
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
            "The model's total energy divided by its output tokens. Active: energy "
            "of running it. Full: including its share of idle power.",
            "joule",
            weighted(
                "1000 * sum without (source) (triton_token_energy_joules<v>)",
                _OUTPUT,
                "model, boundary, basis",
            ),
        ),
        series(
            "Error of the energy of 1,000 output tokens",
            "Half of the 95 % interval, divided by the energy. Absent while unknown.",
            "percentunit",
            # Other models have an error, too, but no tokens.
            latest(
                "max",
                "triton_model_energy_share_error_ratio<v> and on (cluster, namespace, "
                "job, instance, model, version, boundary) triton_token_energy_joules<v>",
                "model, boundary",
            ),
        ),
        series(
            "Cost of 1,000 output tokens",
            "Based on the configured prices. Active: cost of running it. Full: "
            "including a share of the overhead.",
            "short",
            weighted(
                "triton_model_cost_per_thousand_tokens<v>",
                _OUTPUT,
                "model, currency, basis",
            ),
        ),
        series(
            "Carbon of 1,000 output tokens",
            "Grams of CO2 equivalent, from the carbon intensity of the grid and the "
            "PUE.",
            "massg",
            weighted(
                "triton_model_carbon_per_thousand_tokens_grams<v>",
                _OUTPUT,
                "model, basis",
            ),
        ),
    ]


def _backends() -> list[Any]:
    return [
        series(
            "Requests inside the backend",
            "Backends with continuous batching queue requests inside; Triton's own "
            "queue is then empty.",
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
            "Maximum over the selected replicas. When it is full, requests wait or "
            "start over.",
            "percentunit",
            latest("max", "triton_backend_kv_cache_usage_ratio<v>", "model"),
            most=1,
            alerts=["TritonKvCacheFull"],
        ),
        series(
            "Preempted requests",
            "Requests that the backend removed from the KV cache to make room for "
            "others.",
            "cps",
            rate("triton_backend_preemptions_total<v>", "model"),
            alerts=["TritonPreemptionsRising"],
        ),
        series(
            "Prefix cache hits",
            "Share of looked-up prompt tokens that were found and need not be "
            "computed again.",
            "percentunit",
            quotient(
                "triton_backend_prefix_cache_hits_total<v>",
                "triton_backend_prefix_cache_queries_total<v>",
                "model",
            ),
            most=1,
        ),
    ]
