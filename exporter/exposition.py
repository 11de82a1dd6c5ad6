"""Samples to Prometheus text and OpenMetrics, and Triton's text back to numbers.

The only module that meets prometheus_client.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final

from prometheus_client import exposition as text_format  # noqa: TID251
from prometheus_client.core import Exemplar as ClientExemplar  # noqa: TID251
from prometheus_client.core import Metric  # noqa: TID251
from prometheus_client.openmetrics import exposition as openmetrics  # noqa: TID251
from prometheus_client.parser import text_string_to_metric_families  # noqa: TID251

from exporter.catalogue import CATALOGUE
from exporter.samples import BucketSample, HistogramSample, MetricSpec, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from exporter.samples import AnySample, Exemplar

_POSITION: Final = {spec.name: place for place, spec in enumerate(CATALOGUE)}
# Level 9, the library's choice, takes twenty times as long for a tenth less.
_GZIP_LEVEL: Final = 1


def render(
    samples: Iterable[AnySample], *, accept: str = "", accept_encoding: str = ""
) -> tuple[bytes, dict[str, str]]:
    """The page for a scrape and its headers, as the client's `Accept` asks for it."""
    families = _Families(samples)
    if "application/openmetrics-text" in accept:
        body = openmetrics.generate_latest(families)  # type: ignore[no-untyped-call]
        content_type = openmetrics.CONTENT_TYPE_LATEST
    else:
        body = text_format.generate_latest(families)  # type: ignore[arg-type]
        content_type = text_format.CONTENT_TYPE_PLAIN_0_0_4
    headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
    if text_format.gzip_accepted(accept_encoding):
        body = gzip.compress(body, _GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return body, headers


def parse_text(page: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    """Each series of a Prometheus text page as (name, labels, value).

    Raises:
        ValueError: the page is not Prometheus text.
    """
    # Without the comments: knowing a counter, the parser would add `_total` to names
    # that have none, as Triton's.
    lines = page.decode("utf-8").splitlines()
    bare = "\n".join(line for line in lines if not line.startswith("#"))
    for family in text_string_to_metric_families(bare + "\n"):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


class _Families:
    """The samples grouped by metric, in the shape prometheus_client renders."""

    def __init__(self, samples: Iterable[AnySample]) -> None:
        grouped: dict[str, list[AnySample]] = {}
        for sample in samples:
            grouped.setdefault(sample.spec.name, []).append(sample)
        self._grouped = grouped

    def collect(self) -> Iterator[Metric]:
        for name in sorted(self._grouped, key=_POSITION.__getitem__):
            yield _family(self._grouped[name])


def _family(samples: Sequence[AnySample]) -> Metric:
    spec = samples[0].spec
    metric = Metric(_base_name(spec), spec.help, spec.kind, _unit(spec))
    add = metric.add_sample
    names = spec.labels
    for sample in samples:
        labels = dict(zip(names, sample.labels, strict=True))
        if isinstance(sample, Sample):
            add(spec.name, labels, sample.value)
        else:
            _add_histogram(metric, spec, sample, labels)
    return metric


def _add_histogram(
    metric: Metric,
    spec: MetricSpec,
    sample: HistogramSample | BucketSample,
    labels: dict[str, str],
) -> None:
    counts: Sequence[float]
    count: float
    if isinstance(sample, HistogramSample):
        counts = sample.histogram.cumulative(spec.buckets)
        count, total = sample.histogram.count, sample.histogram.sum
        exemplars = _by_bucket(spec.buckets, sample.exemplars)
    else:
        counts, count, total, exemplars = sample.counts, sample.count, sample.sum, {}
    bounds = [*(_le(bound) for bound in spec.buckets), "+Inf"]
    for place, (bound, value) in enumerate(zip(bounds, [*counts, count], strict=True)):
        metric.add_sample(
            f"{spec.name}_bucket",
            {**labels, "le": bound},
            value,
            exemplar=exemplars.get(place),
        )
    metric.add_sample(f"{spec.name}_count", labels, count)
    metric.add_sample(f"{spec.name}_sum", labels, total)


def _by_bucket(
    bounds: Sequence[float], exemplars: Iterable[Exemplar]
) -> dict[int, ClientExemplar]:
    chosen: dict[int, ClientExemplar] = {}
    for exemplar in exemplars:
        place = sum(bound < exemplar.value for bound in bounds)
        chosen[place] = ClientExemplar(
            dict(exemplar.labels), exemplar.value, exemplar.timestamp_seconds
        )
    return chosen


def _base_name(spec: MetricSpec) -> str:
    # prometheus_client wants the family's name and adds the type's suffix itself.
    if spec.kind == "counter":
        return spec.name.removesuffix("_total")
    if spec.kind == "info":
        return spec.name.removesuffix("_info")
    return spec.name


def _unit(spec: MetricSpec) -> str:
    return spec.unit if _base_name(spec).endswith(f"_{spec.unit}") else ""


def _le(bound: float) -> str:
    return f"{bound:.10g}" if bound != int(bound) else f"{bound:.1f}"
