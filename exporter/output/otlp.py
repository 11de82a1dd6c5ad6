"""The same samples to an OpenTelemetry collector. The only module that meets the SDK.

The SDK's own instruments are not used: they cost ten times as much as our samples, and
keep at most 2,000 attribute sets. Its data classes are filled from the samples and
handed to its OTLP exporters.
"""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from exporter.histograms.buckets import SCHEMA
from exporter.network.grpc_core import grpc
from exporter.samples import (
    BASE_UNITS,
    BucketSample,
    HistogramSample,
    Sample,
    labels_of,
)
from exporter.triton import tls_files
from exporter.triton.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from exporter.access.span_buffer import Span
    from exporter.output.otlp_settings import OtlpSettings
    from exporter.samples import AnySample

_SCOPE: Final = InstrumentationScope("tritonwatch", version("tritonwatch"))
# The encoder leaves None out of the message, though the data class does not say so.
_UNKNOWN: Final = cast("float", None)
_UNKNOWN_START: Final = 0
_LARGEST_COUNT: Final = 2**64 - 1
_LARGEST_INTEGER: Final = 2**63 - 1
_CUMULATIVE: Final = sdk.AggregationTemporality.CUMULATIVE
_FIRST: Final = "triton_request_first_response_seconds"
_GENERATION: Final = {
    _FIRST: "gen_ai.server.time_to_first_token",
    "triton_request_time_per_output_token_seconds": "gen_ai.server.time_per_output_token",
    "triton_request_duration_seconds": "gen_ai.server.request.duration",
}
"""Histograms that OpenTelemetry's semantic conventions for generative AI have, too (status:
development), and their names there."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Facts about the models that generate which no sample has."""

    target: str = ""
    """Address of the server: host and port, or a URL."""
    operations: Mapping[str, str] = field(default_factory=dict)
    """Their purpose by pattern of their names, in the words of the conventions."""

    def attributes(self, model: str, version: str) -> dict[str, str | int]:
        """Return the conventions' attributes of a model."""
        chosen = (
            operation
            for pattern, operation in self.operations.items()
            if fnmatchcase(model, pattern)
        )
        found: dict[str, str | int] = {
            "gen_ai.operation.name": next(chosen, "text_completion"),
            "gen_ai.provider.name": "triton",
            "gen_ai.request.model": model,
            "gen_ai.response.model": f"{model}:{version}",
        }
        at = urlsplit(self.target if "://" in self.target else f"//{self.target}")
        if at.hostname:
            found["server.address"] = at.hostname
        if at.port is not None:
            found["server.port"] = at.port
        return found


class OtlpExporter:
    """Sends samples and spans to one collector, over HTTP or gRPC."""

    def __init__(self, settings: OtlpSettings, target: str, *, start_ns: int) -> None:
        self._settings = settings
        self._start_ns = start_ns
        self._resource = resource(settings.resource, target)
        self._generation = Generation(target, settings.operations)
        # gRPC takes names in lower case only; to HTTP they are all the same.
        headers = {k.lower(): v.get_secret_value() for k, v in settings.headers.items()}
        self._metrics, self._spans = _exporters(settings, headers)

    def send_metrics(self, samples: Iterable[AnySample], now_ns: int) -> bool:
        """Send all samples in one request; whether the collector took them."""
        data = metrics_data(
            samples, self._resource, self._start_ns, now_ns, self._generation
        )
        # Older exporters let the errors of a session, which are OSErrors, through.
        with contextlib.suppress(OSError):
            result = self._metrics.export(
                data, timeout_millis=self._settings.timeout_seconds * 1000
            )
            return result is MetricExportResult.SUCCESS
        return False

    def send_spans(self, spans: Sequence[Span]) -> bool:
        """Send the spans in one request; whether the collector took them."""
        if self._spans is None or not spans:
            return True
        readable = [_readable(span, self._resource) for span in spans]
        with contextlib.suppress(OSError):
            return self._spans.export(readable) is SpanExportResult.SUCCESS
        return False

    def close(self) -> None:
        """Close the connections; nothing more is sent."""
        self._metrics.shutdown(timeout_millis=0)
        if self._spans is not None:
            self._spans.shutdown()


def resource(attributes: Mapping[str, str], target: str) -> Resource:
    """Return the OTLP resource: semantic conventions' names, overridden by the config."""
    return Resource(
        {
            "service.name": "tritonwatch",
            "service.version": version("tritonwatch"),
            "service.instance.id": f"{platform.node()}/{target}",
            "host.name": platform.node(),
            **attributes,
        }
    )


def metrics_data(
    samples: Iterable[AnySample],
    about: Resource,
    start_ns: int,
    now_ns: int,
    generation: Generation = Generation(),
) -> sdk.MetricsData:
    """The SDK's data of all samples: totals since they were created, as far as known.

    `start_ns` is the start time of all others but of totals that outlive the process, whose
    start is unknown. Latency histograms become exponential ones
    of scale 5, the same buckets; some appear under conventional names as well.
    """
    grouped: dict[str, list[AnySample]] = {}
    for sample in samples:
        grouped.setdefault(sample.spec.name, []).append(sample)
    # A clock may have been set back since.
    start_ns = min(start_ns, now_ns)
    metrics = [_metric(group, start_ns, now_ns) for group in grouped.values()]
    metrics += list(_conventional(metrics, generation))
    scope = sdk.ScopeMetrics(_SCOPE, metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(about, [scope], "")])


def _metric(group: Sequence[AnySample], start_ns: int, now_ns: int) -> sdk.Metric:
    spec = group[0].spec
    data: sdk.Sum | sdk.Gauge | sdk.Histogram | sdk.ExponentialHistogram
    if spec.kind == "histogram":
        data = _histogram(group, start_ns, now_ns)
    else:
        points = [
            sdk.NumberDataPoint(
                labels_of(sample),
                _start_ns(sample, start_ns),
                now_ns,
                _number(sample.value),
            )
            for sample in group
            if isinstance(sample, Sample)
        ]
        data = (
            sdk.Sum(points, _CUMULATIVE, is_monotonic=True)
            if spec.kind == "counter"
            else sdk.Gauge(points)
        )
    return sdk.Metric(spec.name, spec.help, BASE_UNITS.get(spec.unit, ""), data)


def _histogram(
    group: Sequence[AnySample], start_ns: int, now_ns: int
) -> sdk.Histogram | sdk.ExponentialHistogram:
    exponential = [
        _exponential_point(sample, start_ns, now_ns)
        for sample in group
        if isinstance(sample, HistogramSample)
    ]
    if exponential:
        return sdk.ExponentialHistogram(exponential, _CUMULATIVE)
    classic = [
        _classic_point(sample, start_ns, now_ns)
        for sample in group
        if isinstance(sample, BucketSample)
    ]
    return sdk.Histogram(classic, _CUMULATIVE)


def _exponential_point(
    sample: HistogramSample, start_ns: int, now_ns: int
) -> sdk.ExponentialHistogramDataPoint:
    histogram = sample.histogram
    buckets = histogram.buckets()
    return sdk.ExponentialHistogramDataPoint(
        attributes=labels_of(sample),
        start_time_unix_nano=_start_ns(sample, start_ns),
        time_unix_nano=now_ns,
        count=histogram.count,
        sum=histogram.sum,
        scale=SCHEMA,
        zero_count=histogram.zero_count,
        positive=sdk.Buckets(buckets.otel_offset, buckets.counts.tolist()),
        negative=sdk.Buckets(0, []),
        flags=0,
        min=cast("float", histogram.min),
        max=cast("float", histogram.max),
    )


def _classic_point(
    sample: BucketSample, start_ns: int, now_ns: int
) -> sdk.HistogramDataPoint:
    edges = [min(n, _LARGEST_COUNT) for n in (0, *sample.counts, sample.count)]
    return sdk.HistogramDataPoint(
        attributes=labels_of(sample),
        start_time_unix_nano=_start_ns(sample, start_ns),
        time_unix_nano=now_ns,
        count=int(edges[-1]),
        sum=sample.sum,
        # Ours are cumulative, OpenTelemetry's are not.
        bucket_counts=[int(b - a) for a, b in pairwise(edges)],
        explicit_bounds=list(sample.spec.buckets),
        min=_UNKNOWN,
        max=_UNKNOWN,
    )


def _start_ns(sample: AnySample, otherwise: int) -> int:
    if sample.spec.outlives_process:
        return _UNKNOWN_START
    return otherwise if sample.created is None else int(sample.created * 1e9)


def _number(value: float) -> float:
    # What is whole goes as a signed integer of 64 bits, and one that is larger would
    # cost the whole push.
    return value if abs(value) <= _LARGEST_INTEGER else float(value)


def _conventional(
    metrics: Sequence[sdk.Metric], generation: Generation
) -> Iterator[sdk.Metric]:
    """Yield the histograms of `_GENERATION` under the conventions' names and attributes.

    Of models that streamed an answer.
    """
    generating = {
        _model(point)
        for metric in metrics
        if metric.name == _FIRST
        for point in _latencies(metric)
    }
    for metric in metrics:
        points = [
            replace(point, attributes=generation.attributes(*_model(point)))
            for point in _latencies(metric)
            if _model(point) in generating
        ]
        if points:
            yield sdk.Metric(
                _GENERATION[metric.name],
                metric.description,
                metric.unit,
                sdk.ExponentialHistogram(points, _CUMULATIVE),
            )


def _latencies(metric: sdk.Metric) -> Iterable[sdk.ExponentialHistogramDataPoint]:
    data = metric.data
    if metric.name in _GENERATION and isinstance(data, sdk.ExponentialHistogram):
        return data.data_points
    return ()


def _model(point: sdk.ExponentialHistogramDataPoint) -> tuple[str, str]:
    attributes = point.attributes or {}
    return str(attributes.get("model")), str(attributes.get("version"))


def _readable(span: Span, about: Resource) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=SpanContext(
            span.context.trace_id,
            span.context.span_id,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        ),
        resource=about,
        attributes=dict(span.attributes),
        kind=SpanKind.CLIENT,
        status=Status(StatusCode.OK if span.ok else StatusCode.ERROR),
        start_time=span.context.started_ns,
        end_time=span.ended_ns,
        instrumentation_scope=_SCOPE,
    )


# gRPC would go by way of what HTTP_PROXY names. Its options are text or numbers,
# whatever the SDK declares.
_NO_PROXY: Final = cast("tuple[tuple[str, str]]", (("grpc.enable_http_proxy", 0),))


def _exporters(
    settings: OtlpSettings, headers: dict[str, str]
) -> tuple[MetricExporter, SpanExporter | None]:
    tls = settings.tls or TlsFiles()
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import (  # noqa: PLC0415
            metric_exporter as metrics_over_grpc,
        )
        from opentelemetry.exporter.otlp.proto.grpc import (  # noqa: PLC0415
            trace_exporter as spans_over_grpc,
        )

        channel: dict[str, Any] = {
            "endpoint": settings.endpoint,
            "insecure": settings.endpoint.startswith("http://"),
            "headers": headers,
            "timeout": settings.timeout_seconds,
            "channel_options": _NO_PROXY,
            "credentials": _credentials(tls),
        }
        return (
            metrics_over_grpc.OTLPMetricExporter(**channel),
            spans_over_grpc.OTLPSpanExporter(**channel) if settings.traces else None,
        )
    from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415
        Compression,
    )
    from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415
        metric_exporter as metrics_over_http,
    )
    from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415
        trace_exporter as spans_over_http,
    )

    from exporter.output.otlp_session import CollectorSession  # noqa: PLC0415

    # It trusts what gRPC trusts; by default Python is stricter from 3.13 on.
    trusted = tls_files.context(settings.tls, "otlp.tls")

    def posting(signal: str) -> dict[str, Any]:
        return {
            "endpoint": f"{settings.endpoint.rstrip('/')}/v1/{signal}",
            "headers": headers,
            "timeout": settings.timeout_seconds,
            "compression": Compression.Gzip,
            "session": CollectorSession(trusted),
            "certificate_file": tls.ca_file,
            "client_certificate_file": tls.cert_file,
            "client_key_file": tls.key_file,
        }

    spans = spans_over_http.OTLPSpanExporter
    return (
        metrics_over_http.OTLPMetricExporter(**posting("metrics")),
        spans(**posting("traces")) if settings.traces else None,
    )


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    files = tls_files.contents(tls, "otlp.tls")
    return grpc.ssl_channel_credentials(
        files["ca_file"], files["key_file"], files["cert_file"]
    )
