"""Prometheus's protobuf exposition, the only road for native histograms.

`io.prometheus.client.MetricFamily` messages, each after its length (delimited). A
latency histogram carries its classic buckets and its exponential ones; a Prometheus
that has native histograms on takes the latter. The message types are built here, field
by field as in prometheus/client_model's metrics.proto, because no Python package has
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from exporter.histograms.buckets import SCHEMA, ZERO_THRESHOLD
from exporter.samples import BucketSample, HistogramSample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from exporter.histograms.histogram import Histogram
    from exporter.samples import AnySample, Exemplar, MetricSpec

MEDIA_TYPE: Final = "application/vnd.google.protobuf"
CONTENT_TYPE: Final = (
    f"{MEDIA_TYPE}; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
_PACKAGE: Final = "tritonwatch.prometheus"
# A gap of more empty buckets than this is cheaper as a new span than as zeros.
_MAX_GAP: Final = 2
_LARGEST_COUNT: Final = 2**64 - 1
# A summary in this format has a count and a sum, which a window's quantiles have not:
# Prometheus would read 0. They go as the gauges they are.
_TYPES: Final = {"counter": 0, "gauge": 1, "info": 1, "summary": 1, "histogram": 4}

_F = descriptor_pb2.FieldDescriptorProto
_FIELDS: Final[dict[str, tuple[tuple[str, int, int, str], ...]]] = {
    "LabelPair": (("name", 1, _F.TYPE_STRING, ""), ("value", 2, _F.TYPE_STRING, "")),
    "Timestamp": (("seconds", 1, _F.TYPE_INT64, ""), ("nanos", 2, _F.TYPE_INT32, "")),
    "Gauge": (("value", 1, _F.TYPE_DOUBLE, ""),),
    "Counter": (
        ("value", 1, _F.TYPE_DOUBLE, ""),
        ("created_timestamp", 3, _F.TYPE_MESSAGE, "Timestamp"),
    ),
    "Exemplar": (
        ("label", 1, _F.TYPE_MESSAGE, "LabelPair*"),
        ("value", 2, _F.TYPE_DOUBLE, ""),
        ("timestamp", 3, _F.TYPE_MESSAGE, "Timestamp"),
    ),
    "Bucket": (
        ("cumulative_count", 1, _F.TYPE_UINT64, ""),
        ("upper_bound", 2, _F.TYPE_DOUBLE, ""),
        ("exemplar", 3, _F.TYPE_MESSAGE, "Exemplar"),
    ),
    "BucketSpan": (
        ("offset", 1, _F.TYPE_SINT32, ""),
        ("length", 2, _F.TYPE_UINT32, ""),
    ),
    "Histogram": (
        ("sample_count", 1, _F.TYPE_UINT64, ""),
        ("sample_sum", 2, _F.TYPE_DOUBLE, ""),
        ("bucket", 3, _F.TYPE_MESSAGE, "Bucket*"),
        ("schema", 5, _F.TYPE_SINT32, ""),
        ("zero_threshold", 6, _F.TYPE_DOUBLE, ""),
        ("zero_count", 7, _F.TYPE_UINT64, ""),
        ("positive_span", 12, _F.TYPE_MESSAGE, "BucketSpan*"),
        ("positive_delta", 13, _F.TYPE_SINT64, "*"),
        ("created_timestamp", 15, _F.TYPE_MESSAGE, "Timestamp"),
        ("exemplars", 16, _F.TYPE_MESSAGE, "Exemplar*"),
    ),
    "Metric": (
        ("label", 1, _F.TYPE_MESSAGE, "LabelPair*"),
        ("gauge", 2, _F.TYPE_MESSAGE, "Gauge"),
        ("counter", 3, _F.TYPE_MESSAGE, "Counter"),
        ("histogram", 7, _F.TYPE_MESSAGE, "Histogram"),
    ),
    "MetricFamily": (
        ("name", 1, _F.TYPE_STRING, ""),
        ("help", 2, _F.TYPE_STRING, ""),
        ("type", 3, _F.TYPE_INT32, ""),
        ("metric", 4, _F.TYPE_MESSAGE, "Metric*"),
        ("unit", 5, _F.TYPE_STRING, ""),
    ),
}
"""Field name, number, type, and the message it holds; * marks a repeated one. The enum
of `type` is an int32 here, which is the same on the wire."""


def _message_types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="tritonwatch_prometheus.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, holds in fields:
            repeated = holds.endswith("*")
            added = message.field.add(
                name=field,
                number=number,
                type=kind,
                label=_F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL,
            )
            if kind == _F.TYPE_MESSAGE:
                added.type_name = f".{_PACKAGE}.{holds.removesuffix('*')}"
            elif repeated:
                added.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        )
        for name in _FIELDS
    }


_MESSAGES: Final = _message_types()


def encode(families: Iterable[Sequence[AnySample]]) -> bytes:
    """Each family's samples, all of one spec, as delimited MetricFamily messages."""
    parts: list[bytes] = []
    for samples in families:
        message = _family(samples).SerializeToString()
        parts += [_varint(len(message)), message]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Base-128 varint, as protobuf's length prefix."""
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _family(samples: Sequence[AnySample]) -> Any:
    spec = samples[0].spec
    family = _MESSAGES["MetricFamily"](
        name=spec.name, help=spec.help, type=_TYPES[spec.kind], unit=spec.unit
    )
    for sample in samples:
        metric = family.metric.add()
        for name, value in zip(spec.labels, sample.labels, strict=True):
            metric.label.add(name=name, value=_readable(value))
        if isinstance(sample, HistogramSample):
            _add_latency(metric.histogram, sample)
        elif isinstance(sample, BucketSample):
            _add_classic(
                metric.histogram, spec, sample.counts, sample.count, sample.sum
            )
        else:
            _value(metric, spec).value = sample.value
        if sample.created is not None:
            total = metric.counter if spec.kind == "counter" else metric.histogram
            _fill_time(total.created_timestamp, sample.created)
    return family


def _readable(text: str) -> str:
    # A label may come from foreign JSON, which can hold half a surrogate pair.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _value(metric: Any, spec: MetricSpec) -> Any:
    return metric.counter if spec.kind == "counter" else metric.gauge


def _add_latency(message: Any, sample: HistogramSample) -> None:
    histogram = sample.histogram
    spec = sample.spec
    counts = histogram.cumulative(spec.buckets)
    _add_classic(message, spec, counts, histogram.count, histogram.sum)
    message.schema = SCHEMA
    message.zero_threshold = ZERO_THRESHOLD
    message.zero_count = histogram.zero_count
    _add_spans(message, histogram)
    for exemplar in sample.exemplars:
        place = sum(bound < exemplar.value for bound in spec.buckets)
        _fill_exemplar(message.bucket[place].exemplar, exemplar)
        _fill_exemplar(message.exemplars.add(), exemplar)


def _add_classic(
    message: Any,
    spec: MetricSpec,
    counts: Sequence[float],
    count: float,
    total: float,
) -> None:
    message.sample_count = _uint64(count)
    message.sample_sum = total
    for bound, value in zip(
        (*spec.buckets, float("inf")), (*counts, count), strict=True
    ):
        message.bucket.add(cumulative_count=_uint64(value), upper_bound=bound)


def _uint64(count: float) -> int:
    # A server whose counters go below 0 counts near 2^64; several such add up to more.
    return min(int(count), _LARGEST_COUNT)


def _add_spans(message: Any, histogram: Histogram) -> None:
    """Runs of populated buckets as spans, their counts as differences.

    An empty histogram carries one span without buckets, by which Prometheus still
    knows it to be native.
    """
    first, counts = histogram.buckets()
    if counts.size == 0:
        message.positive_span.add(offset=0, length=0)
        return
    end = 0
    for start, stop in _runs(counts):
        offset = first + start if end == 0 else start - end
        message.positive_span.add(offset=offset, length=stop - start)
        end = stop
    kept = np.concatenate([counts[start:stop] for start, stop in _runs(counts)])
    message.positive_delta.extend(np.diff(kept, prepend=0).tolist())


def _runs(counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    populated = np.flatnonzero(counts)
    breaks = np.flatnonzero(np.diff(populated) > _MAX_GAP + 1)
    starts = populated[np.concatenate(([0], breaks + 1))]
    stops = populated[np.concatenate((breaks, [populated.size - 1]))] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _fill_exemplar(message: Any, exemplar: Exemplar) -> None:
    message.value = exemplar.value
    _fill_time(message.timestamp, exemplar.timestamp_seconds)
    for name, value in exemplar.labels.items():
        message.label.add(name=name, value=_readable(value))


def _fill_time(message: Any, seconds: float) -> None:
    message.seconds = int(seconds)
    message.nanos = int((seconds - int(seconds)) * 1e9)
