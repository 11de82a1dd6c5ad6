"""Queries of quantiles: over the fleet, and of each replica with its interval."""

from __future__ import annotations

from typing import Final

from exporter.histograms import histogram_promql
from grafana.panels import Query, bounds

BAND: Final = ("/ lower$/", "/ upper$/")
"""Legends of the bounds that `p99_of_replicas` asks for."""


def fleet_quantiles(histogram: str) -> list[Query]:
    """p50, p95 and p99 by model, from histograms summed over replicas."""
    return [
        Query(
            histogram_promql.quantile(
                q, histogram, "$__rate_interval", "model", where="<v>"
            ),
            f"{{{{model}}}} p{name}",
        )
        for q, name in ((0.5, "50"), (0.95, "95"), (0.99, "99"))
    ]


def p99_of_replicas(latency: str) -> list[Query]:
    """The p99 of each replica, and the bounds of its interval."""
    return [
        Query(f'{latency}_seconds<v,quantile="0.99">', "{{instance}} {{model}} p99"),
        *bounds(
            f'{latency}_ci_seconds<v,quantile="0.99">',
            "{{instance}} {{model}}",
            "lower",
            "upper",
        ),
    ]
