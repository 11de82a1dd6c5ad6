"""Samples of collectors and probes: values that carry their catalogue entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.histograms.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "info", "summary"]
"""A summary here is quantiles alone: of a window, so without a count and a sum."""
Stability = Literal["stable", "experimental"]
BASE_UNITS: Final = {
    "seconds": "s",
    "bytes": "By",
    "ratio": "1",
    "joules": "J",
    "watts": "W",
    "hertz": "Hz",
    "celsius": "Cel",
    "grams": "g",
}
"""Units that names end in, and OpenTelemetry's codes for them."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric as the catalogue declares it.

    `name` is the full Prometheus name (counters with `_total`, constants with `_info`),
    which ends in its base unit where it has one. `buckets` are the classic `le` bounds of a histogram.
    `on_probe_only` is a metric of /probe that /metrics never has. `outlives_process` is
    a total that somebody else counts or that is restored from disk.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    stability: Stability = "stable"
    on_probe_only: bool = False
    outlives_process: bool = False

    @property
    def kind(self) -> Kind:
        """The Prometheus type, derived from the name, the buckets and the labels."""
        if self.name.endswith("_total"):
            return "counter"
        if self.name.endswith("_info"):
            return "info"
        if self.buckets:
            return "histogram"
        # A sample of a quantile without a unit is a count, no quantile.
        return "summary" if "quantile" in self.labels and self.unit else "gauge"

    @property
    def unit(self) -> str:
        """The base unit that the name ends in; "" for a count."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in BASE_UNITS else ""


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation that represents its bucket: value, time, and trace."""

    value: float
    timestamp_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """A number for one series. `labels` are values in the order of `spec.labels`.

    `created` is when a total began at zero, in seconds since the epoch; None if unknown.
    """

    spec: MetricSpec
    value: float
    labels: tuple[str, ...] = ()
    created: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ReadTime(Sample):
    """When a collector read its source: `value` is seconds since the epoch.

    `at` is the same instant in monotonic seconds, for rates: the wall clock may be set.
    """

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """A cumulative latency histogram for one series, with the latest exemplars."""

    spec: MetricSpec
    histogram: Histogram
    labels: tuple[str, ...] = ()
    exemplars: Sequence[Exemplar] = ()
    created: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class BucketSample:
    """Cumulative counts under fixed bounds, for counted rather than timed values.

    `counts[i]` is the number of observations <= `spec.buckets[i]`; `count` all of them.
    """

    spec: MetricSpec
    counts: tuple[float, ...]
    count: float
    sum: float
    labels: tuple[str, ...] = ()
    created: float | None = field(default=None, compare=False)


AnySample = Sample | HistogramSample | BucketSample


def labels_of(sample: AnySample) -> dict[str, str]:
    """Return the labels of a sample by name."""
    return dict(zip(sample.spec.labels, sample.labels, strict=True))
