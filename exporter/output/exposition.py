"""Samples to Prometheus text, OpenMetrics and protobuf, and Triton's text to numbers.

The only module that uses prometheus_client. Its reader is used as it is; its writer
escapes every name of every line anew and would take most of the time a scrape may take,
so the pages are written here, byte for byte as it would write them.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import exposition as text_format  # noqa: TID251
from prometheus_client.openmetrics import (  # noqa: TID251
    exposition as openmetrics_format,
)
from prometheus_client.parser import text_string_to_metric_families  # noqa: TID251
from prometheus_client.utils import floatToGoString  # noqa: TID251

from exporter.catalogue import CATALOGUE
from exporter.output import protobuf
from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from exporter.samples import AnySample, BucketSample, Exemplar, MetricSpec

_POSITION: Final = {spec.name: place for place, spec in enumerate(CATALOGUE)}
# Level 9, the library's choice, takes twenty times as long for a tenth less.
_GZIP_LEVEL: Final = 1
# From here on Go writes numbers in another way than Python.
_GO_EXPONENT: Final = 1e6
# OpenMetrics 1.0: names and values of an exemplar's labels together.
_EXEMPLAR_RUNES: Final = 128
_Format = Literal["text", "openmetrics", "protobuf"]
_BY_TYPE: Final[dict[str, _Format]] = {
    "text/plain": "text",
    "text/*": "text",
    "*/*": "text",
}
# 0.0.1 is how Prometheus called the draft that became 1.0.0.
_OPENMETRICS_VERSIONS: Final = frozenset({"1.0.0", "0.0.1"})
_SUFFIX: Final = {"counter": "_total", "info": "_info"}


def negotiated(accept: str, accept_encoding: str) -> str:
    """Return the format for these headers: clients with the same result share one page."""
    packed = " gzip" if _takes_gzip(accept_encoding) else ""
    return f"{_negotiated(accept)}{packed}"


def render(
    samples: Iterable[AnySample], *, accept: str = "", accept_encoding: str = ""
) -> tuple[bytes, dict[str, str]]:
    """The page for a scrape and its headers, as the client's `Accept` asks for it.

    Raises:
        ValueError: a sample has not as many labels as its metric.
    """
    families = _families(samples)
    match _negotiated(accept):
        case "protobuf":
            body, content_type = protobuf.encode(families), protobuf.CONTENT_TYPE
        case "openmetrics":
            body = _page(families, _openmetrics_layout, openmetrics=True) + b"# EOF\n"
            content_type = openmetrics_format.CONTENT_TYPE_LATEST
        case "text":
            body = _page(families, _text_layout, openmetrics=False)
            content_type = text_format.CONTENT_TYPE_PLAIN_0_0_4
    headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
    if _takes_gzip(accept_encoding):
        body = gzip.compress(body, _GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return body, headers


def _negotiated(accept: str) -> _Format:
    """The format the client likes best of those we have; the first of equals, or text."""
    best: tuple[float, _Format] = (0.0, "text")
    for kind, parameters, quality in _offers(accept):
        found = _format(kind, parameters)
        if found is not None and quality > best[0]:
            best = quality, found
    return best[1]


def _takes_gzip(accept_encoding: str) -> bool:
    # Only where it is named: what `*` stands for may not be meant for us.
    return any(
        kind == "gzip" and quality > 0 for kind, _, quality in _offers(accept_encoding)
    )


def _offers(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Each offer of an Accept header with its parameters and its quality."""
    for offer in header.lower().split(","):
        kind, *rest = (part.strip() for part in offer.split(";"))
        pairs = (part.split("=", 1) for part in rest if "=" in part)
        parameters = {key.strip(): value.strip(' "') for key, value in pairs}
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            continue
        yield kind, parameters, quality


def _format(kind: str, parameters: Mapping[str, str]) -> _Format | None:
    if kind == "application/vnd.google.protobuf":
        family = parameters.get("proto") == "io.prometheus.client.metricfamily"
        delimited = parameters.get("encoding") == "delimited"
        return "protobuf" if family and delimited else None
    if kind == "application/openmetrics-text":
        known = parameters.get("version", "1.0.0") in _OPENMETRICS_VERSIONS
        return "openmetrics" if known else None
    return _BY_TYPE.get(kind)


def parse_text(page: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    """Each series of a Prometheus text page as (name, labels, value).

    Raises:
        ValueError: the page is not Prometheus text.
    """
    # Without the comments: knowing a counter, the parser would add `_total` to names
    # that have none, as Triton's. Only \n ends a line; a label may hold other breaks.
    lines = page.decode("utf-8").split("\n")
    bare = "\n".join(line for line in lines if not line.startswith("#"))
    try:
        for family in text_string_to_metric_families(bare + "\n"):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except (LookupError, TypeError, AttributeError) as error:
        # The parser trusts what it reads.
        raise ValueError(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Layout:
    """The parts that all lines of one metric share: built once, then filled in."""

    header: str
    labels: str
    """`a="%s",b="%s"`, sorted by name, with %-places for the escaped values."""
    order: tuple[int, ...]
    """Index of a sample's label for each place."""
    buckets: tuple[str, ...]
    """The start of each bucket's line with %-places for labels, up to the value."""

    def fill(self, spec: MetricSpec, values: Sequence[str]) -> tuple[str, ...]:
        """The values escaped and in order."""
        if len(values) != len(spec.labels):
            raise ValueError(
                f"{spec.name} takes the labels {spec.labels}; found {tuple(values)}"
            )
        return tuple([_escaped(values[place]) for place in self.order])


def _families(samples: Iterable[AnySample]) -> list[list[AnySample]]:
    """The samples of each metric, in the catalogue's order."""
    grouped: dict[str, list[AnySample]] = {}
    for sample in samples:
        grouped.setdefault(sample.spec.name, []).append(sample)
    return [grouped[name] for name in sorted(grouped, key=_POSITION.__getitem__)]


def _page(
    families: Iterable[Sequence[AnySample]],
    layout_of: Callable[[MetricSpec], _Layout],
    *,
    openmetrics: bool,
) -> bytes:
    lines: list[str] = []
    for family in families:
        spec = family[0].spec
        layout = layout_of(spec)
        lines.append(layout.header)
        # The first part of the line; the value follows.
        series = f"{spec.name}{{{layout.labels}}} " if spec.labels else f"{spec.name} "
        for sample in family:
            values = layout.fill(spec, sample.labels)
            if isinstance(sample, Sample):
                lines.append(f"{series % values}{_number(sample.value)}\n")
            else:
                lines += _histogram(layout, spec, sample, values, exemplars=openmetrics)
            if openmetrics and sample.created is not None:
                name = spec.name.removesuffix("_total")
                labels = f"{{{layout.labels % values}}}" if values else ""
                lines.append(f"{name}_created{labels} {_number(sample.created)}\n")
    # A label may come from foreign JSON, which can hold half a surrogate pair.
    return "".join(lines).encode("utf-8", "replace")


def _histogram(
    layout: _Layout,
    spec: MetricSpec,
    sample: HistogramSample | BucketSample,
    values: tuple[str, ...],
    *,
    exemplars: bool,
) -> Iterator[str]:
    counts: Sequence[float]
    count: float
    attached: Mapping[int, str] = {}
    if isinstance(sample, HistogramSample):
        counts = sample.histogram.cumulative(spec.buckets)
        count, total = sample.histogram.count, sample.histogram.sum
        if exemplars:
            attached = _exemplars(spec.buckets, sample.exemplars)
    else:
        counts, count, total = sample.counts, sample.count, sample.sum
    pairs = zip(layout.buckets, (*counts, count), strict=True)
    for place, (start, value) in enumerate(pairs):
        yield f"{start % values}{_number(value)}{attached.get(place, '')}\n"
    labels = f"{{{layout.labels % values}}}" if values else ""
    yield f"{spec.name}_count{labels} {_number(count)}\n"
    yield f"{spec.name}_sum{labels} {_number(total)}\n"


def _exemplars(
    bounds: Sequence[float], exemplars: Iterable[Exemplar]
) -> dict[int, str]:
    """Return the exemplars to append to the lines of buckets, by the bucket's index."""
    chosen: dict[int, str] = {}
    for exemplar in exemplars:
        if sum(len(k) + len(v) for k, v in exemplar.labels.items()) > _EXEMPLAR_RUNES:
            continue  # Prometheus would refuse the whole page
        labels = _pairs({k: _escaped(v) for k, v in exemplar.labels.items()})
        place = sum(bound < exemplar.value for bound in bounds)
        chosen[place] = (
            f" # {{{labels}}} {_number(exemplar.value)} {exemplar.timestamp_seconds}"
        )
    return chosen


@lru_cache(maxsize=2 * len(CATALOGUE))
def _text_layout(spec: MetricSpec) -> _Layout:
    kind = "gauge" if spec.kind == "info" else spec.kind
    text = spec.help.replace("\\", r"\\").replace("\n", r"\n")
    return _layout(spec, f"# HELP {spec.name} {text}\n# TYPE {spec.name} {kind}\n")


@lru_cache(maxsize=2 * len(CATALOGUE))
def _openmetrics_layout(spec: MetricSpec) -> _Layout:
    # There a family has its name without what its kind adds.
    name = spec.name.removesuffix(_SUFFIX.get(spec.kind, ""))
    header = f"# HELP {name} {_escaped(spec.help)}\n# TYPE {name} {spec.kind}\n"
    if spec.unit:
        header += f"# UNIT {name} {spec.unit}\n"
    return _layout(spec, header)


def _layout(spec: MetricSpec, header: str) -> _Layout:
    order = tuple(sorted(range(len(spec.labels)), key=spec.labels.__getitem__))
    places = {spec.labels[place]: "%s" for place in order}
    bounds = (*map(_le, spec.buckets), "+Inf") if spec.kind == "histogram" else ()
    buckets = tuple(
        f"{spec.name}_bucket{{{_pairs({**places, 'le': bound})}}} " for bound in bounds
    )
    return _Layout(header, _pairs(places), order, buckets)


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{labels[name]}"' for name in sorted(labels))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if -_GO_EXPONENT < value < _GO_EXPONENT:
        return repr(float(value))
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _le(bound: float) -> str:
    return f"{bound:.10g}" if bound != int(bound) else f"{bound:.1f}"
