"""Queries as Prometheus would see them, and what they ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import promql_parser

from exporter.catalogue import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What Grafana puts in; "all" for every variable.
VARIABLES = {
    "$__rate_interval": "1m",
    "$__range": "1h",
    "$job": ".+",
    "$instance": ".+",
}
# What Prometheus itself or the scrape configuration adds to every series.
FOREIGN_LABELS = {"job", "instance", "cluster", "namespace"}
FOREIGN_METRICS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
# What the rules of `tritonwatch rules` record, for a whole fleet.
RECORDED = {"slo:error_budget_remaining:ratio": {"slo"}}
_SUFFIXES = {
    "histogram": {"_bucket": {"le"}, "_sum": set(), "_count": set(), "": set()},
}


def filled_in(expression: str) -> str:
    """With Grafana's variables replaced by what "All" means."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z]+", ".*", expression)


@dataclass(frozen=True)
class Selected:
    """One vector selector of a query."""

    metric: str
    labels: frozenset[str]
    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By label, the values that the selector names."""


def series_names() -> dict[str, set[str]]:
    """Every series the catalogue allows, with its labels."""
    found = {}
    for spec in CATALOGUE:
        for suffix, more in _SUFFIXES.get(spec.kind, {"": set()}).items():
            found[spec.name + suffix] = {*spec.labels, *more}
    return found


def selectors(expression: str) -> list[Selected]:
    """Every vector selector of a query; raises ValueError where it does not parse."""
    return [
        Selected(
            node.name or "",
            frozenset(m.name for m in node.matchers.matchers),
            {m.name: _values(m) for m in node.matchers.matchers},
        )
        for node in _walk(promql_parser.parse(expression))
        if isinstance(node, promql_parser.VectorSelector)
    ]


def _values(matcher: Any) -> frozenset[str]:
    if matcher.op == promql_parser.MatchOp.Equal:
        return frozenset({matcher.value})
    if matcher.op == promql_parser.MatchOp.Re:
        return frozenset(v for v in matcher.value.split("|") if re.fullmatch(r"\w+", v))
    return frozenset()


def grouping_labels(expression: str) -> set[str]:
    """Labels that aggregations keep."""
    found: set[str] = set()
    for node in _walk(promql_parser.parse(expression)):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)
    return found


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, str):
            yield from _walk(child)
    for child in getattr(node, "args", None) or ():
        yield from _walk(child)
