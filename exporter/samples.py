"""What collectors and probes hand over: values that carry their catalogue entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "info", "summary"]
"""A summary here is quantiles alone: of a window, so without a count and a sum."""
Stability = Literal["stable", "experimental"]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric as the catalogue declares it.

    `name` is the full Prometheus name (counters with `_total`), `unit` a base unit of
    Prometheus or "" for a count, `buckets` the classic `le` bounds of a histogram.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()
    stability: Stability = "stable"


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation that stands for its bucket: value, when, and where to look."""

    value: float
    timestamp_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """A number for one series. `labels` are values in the order of `spec.labels`."""

    spec: MetricSpec
    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """A cumulative latency histogram for one series, with the latest exemplars."""

    spec: MetricSpec
    histogram: Histogram
    labels: tuple[str, ...] = ()
    exemplars: Sequence[Exemplar] = ()


@dataclass(frozen=True, slots=True)
class BucketSample:
    """Cumulative counts under fixed bounds, for what is counted rather than timed.

    `counts[i]` is the number of observations <= `spec.buckets[i]`; `count` all of them.
    """

    spec: MetricSpec
    counts: tuple[float, ...]
    count: float
    sum: float
    labels: tuple[str, ...] = ()


AnySample = Sample | HistogramSample | BucketSample
