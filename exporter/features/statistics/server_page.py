"""All values used from Triton's metrics page, from one read of it.

Backends and models write to this page, too. Series of Triton's own that a model registered
with other labels are recognised by these and refused. What a model adds to one of Triton's
own series, or under another model's name to a backend's, cannot be detected on the page; the
former shows as a disagreement with the statistics, from which production is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter.triton.metrics_page import lines_of, read_page
from exporter.triton.upstream import (
    BACKEND,
    CROSS_CHECKED,
    FAILURE_REASONS,
    FAILURES,
    FIRST_RESPONSE,
    OWN_LABELS,
    PENDING,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey

MAX_SERIES: Final = 100_000
MAX_BACKEND_SERIES: Final = 10_000
"""Limit of their own, so that series of models do not displace those of Triton."""

_FIELDS: Final = {item.name: item.statistics_field for item in CROSS_CHECKED}
_HISTOGRAM: Final = {
    f"{FIRST_RESPONSE.name}_{part}": part for part in ("bucket", "sum", "count")
}
_OWN_LINES: Final = lines_of([*_FIELDS, PENDING.name, *_HISTOGRAM])
_BACKEND_LINES: Final = lines_of({item.name for item in BACKEND})
_BACKEND_FIELDS: Final = {(item.name, *item.label): item.field for item in BACKEND}
_LABELS: Final = {
    FAILURES: OWN_LABELS | {"reason"},
    f"{FIRST_RESPONSE.name}_bucket": OWN_LABELS | {"le"},
}
_SELECTING: Final = {item.name: item.label[0] for item in BACKEND}


@dataclass(frozen=True, slots=True)
class Page:
    """The series of Triton's metrics page that are read."""

    counters: Mapping[tuple[ModelKey, str], float]
    """(model, statistics field) -> value, summed over GPUs and failure reasons."""
    pending: Mapping[ModelKey, float]
    """Requests that wait for an instance."""
    failures: Mapping[tuple[ModelKey, str], float] = field(default_factory=dict)
    """Failed requests by reason."""
    first_response: Mapping[ModelKey, Mapping[str, float]] = field(default_factory=dict)
    """Cumulative counts by bound in milliseconds, "sum" and "count"."""
    backend: Mapping[ModelKey, Mapping[str, float]] = field(default_factory=dict)
    """Values that its backend reports, by field of `upstream.BACKEND`."""
    refused: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Lines by the reason for which they were not used."""


def page_of(body: bytes) -> Page:
    """Read a metrics page; lines that cannot be read are counted."""
    own = read_page(body, _OWN_LINES, most_series=MAX_SERIES)
    refused = own.refused
    counters: dict[tuple[ModelKey, str], float] = defaultdict(float)
    failures: dict[tuple[ModelKey, str], float] = defaultdict(float)
    first: dict[ModelKey, dict[str, float]] = defaultdict(dict)
    pending: dict[ModelKey, float] = {}
    for name, labels, value in own.series:
        if "model" not in labels or "version" not in labels:
            continue
        known = _LABELS.get(name, OWN_LABELS)
        if not all(label in known or label.startswith("_") for label in labels):
            refused["foreign_labels"] += 1
            continue
        key = labels["model"], labels["version"]
        if name in _FIELDS:
            counters[key, _FIELDS[name]] += value
            if name == FAILURES and "reason" in labels:
                reason = labels["reason"]
                if reason not in FAILURE_REASONS:
                    reason = FAILURE_REASONS[-1]
                failures[key, reason] += value
        elif name == PENDING.name:
            # The model has a series, and each of its GPUs has one that may stay 0.
            pending[key] = pending.get(key, 0.0) + value
        else:
            part = _HISTOGRAM[name]
            part = labels.get("le", "") if part == "bucket" else part
            first[key][part] = first[key].get(part, 0.0) + value
    backend = _backend(body, refused)
    return Page(dict(counters), pending, failures, dict(first), backend, refused)


def _backend(body: bytes, refused: Counter[str]) -> dict[ModelKey, dict[str, float]]:
    page = read_page(body, _BACKEND_LINES, most_series=MAX_BACKEND_SERIES)
    refused.update(page.refused)
    found: dict[ModelKey, dict[str, float]] = defaultdict(dict)
    for name, labels, value in page.series:
        label = _SELECTING[name]
        field_name = _BACKEND_FIELDS.get((name, label, labels.get(label, "")))
        key = _key_of(labels)
        if field_name is None or key is None:
            continue
        is_ratio = field_name == "kv_cache"
        if value < 0 or (is_ratio and value > 1):
            refused["value"] += 1
            continue
        # Each engine of one model has series of its own.
        fields = found[key]
        before = fields.get(field_name, 0.0)
        fields[field_name] = max(before, value) if is_ratio else before + value
    return dict(found)


def _key_of(labels: Mapping[str, str]) -> ModelKey | None:
    """Return the model of a backend's series; vLLM without Triton knows no versions."""
    if "model" in labels and "version" in labels:
        return labels["model"], labels["version"]
    return (labels["model_name"], "") if "model_name" in labels else None
