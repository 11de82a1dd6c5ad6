"""The pages are written by us; prometheus_client says what they have to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import exposition as text_format
from prometheus_client.core import Exemplar as ClientExemplar
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from protobuf_pages import PROTOBUF, delimited

from exporter.catalogue import CATALOGUE
from exporter.histograms.histogram import Histogram
from exporter.output import exposition
from exporter.samples import BucketSample, Exemplar, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.samples import AnySample, MetricSpec

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
SPECS = st.sampled_from(CATALOGUE)
AWKWARD = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", "\n", '\\"', "\\n", "a\nb", "%s", "{}", "ü", "\u2028", "\x00", ""]
)
VALUES = (
    st.floats()
    | st.integers(-(2**60), 2**60)
    | st.booleans()
    | st.sampled_from([999_999.0, 1e6, 999_999.9999999999, 12345678.9, 1e21, -1e6])
)


class Reference:
    """The samples in the shape that prometheus_client writes.

    `created` is for OpenMetrics: text has no creation times.
    """

    def __init__(self, samples: Sequence[AnySample], *, created: bool) -> None:
        self._samples = samples
        self._created = created

    def collect(self) -> Iterator[Metric]:
        for spec in CATALOGUE:
            mine = [s for s in self._samples if s.spec is spec]
            if mine:
                yield family(spec, mine, created=self._created)


def family(spec: MetricSpec, samples: Sequence[AnySample], *, created: bool) -> Metric:
    suffix = {"counter": "_total", "info": "_info"}.get(spec.kind, "")
    name = spec.name.removesuffix(suffix)
    unit = spec.unit if name.endswith(f"_{spec.unit}") else ""
    metric = Metric(name, spec.help, spec.kind, unit)
    for sample in samples:
        labels = dict(zip(spec.labels, sample.labels, strict=True))
        if isinstance(sample, Sample):
            metric.add_sample(spec.name, labels, sample.value)
        else:
            add_histogram(metric, spec, sample, labels)
        if created and sample.created is not None:
            metric.add_sample(f"{name}_created", labels, sample.created)
    return metric


def add_histogram(
    metric: Metric,
    spec: MetricSpec,
    sample: HistogramSample | BucketSample,
    labels: dict[str, str],
) -> None:
    exemplars: dict[int, ClientExemplar] = {}
    if isinstance(sample, HistogramSample):
        counts: Sequence[float] = sample.histogram.cumulative(spec.buckets)
        count, total = sample.histogram.count, sample.histogram.sum
        for exemplar in sample.exemplars:
            place = sum(bound < exemplar.value for bound in spec.buckets)
            exemplars[place] = ClientExemplar(
                dict(exemplar.labels), exemplar.value, exemplar.timestamp_seconds
            )
    else:
        counts, count, total = sample.counts, sample.count, sample.sum
    bounds = [f"{b:.10g}" if b % 1 else f"{b:.1f}" for b in spec.buckets]
    for place, (bound, value) in enumerate(
        zip([*bounds, "+Inf"], [*counts, count], strict=True)
    ):
        metric.add_sample(
            f"{spec.name}_bucket",
            {**labels, "le": bound},
            value,
            exemplar=exemplars.get(place),
        )
    metric.add_sample(f"{spec.name}_count", labels, count)
    metric.add_sample(f"{spec.name}_sum", labels, total)


@st.composite
def one_sample(draw: st.DrawFn) -> AnySample:
    spec = draw(SPECS)
    labels = tuple(draw(AWKWARD) for _ in spec.labels)
    total_since = draw(st.none() | st.floats(0, 4e9))
    if spec.kind != "histogram":
        created = total_since if spec.kind == "counter" else None
        return Sample(spec, draw(VALUES), labels, created)
    if draw(st.booleans()):
        counts = tuple(sorted(draw(st.integers(0, 10**9)) for _ in spec.buckets))
        total = draw(st.floats(0, 1e12))
        return BucketSample(spec, counts, counts[-1] + 1, total, labels, total_since)
    histogram = Histogram()
    seconds = draw(st.lists(st.floats(0, 1e5), max_size=4))
    histogram.record_many(seconds)
    exemplars = tuple(
        Exemplar(value, draw(st.floats(0, 2e9)), {"request_id": draw(AWKWARD)})
        for value in seconds[:2]
    )
    return HistogramSample(spec, histogram, labels, exemplars, total_since)


@given(st.lists(one_sample(), max_size=8))
def test_a_page_of_text_or_openmetrics_is_what_prometheus_client_would_write(
    samples: list[AnySample],
) -> None:
    plain = text_format.CONTENT_TYPE_PLAIN_0_0_4
    for accept, created, theirs, kind in (
        ("", False, text_format, plain),
        (OPENMETRICS, True, openmetrics, openmetrics.CONTENT_TYPE_LATEST),
    ):
        body, headers = exposition.render(samples, accept=accept)
        expected = theirs.generate_latest(Reference(samples, created=created))
        assert body.decode() == expected.decode()
        assert headers["content-type"] == kind


def every_metric() -> list[AnySample]:
    samples: list[AnySample] = []
    for spec in CATALOGUE:
        labels = tuple(f"{name} of {spec.name}" for name in spec.labels)
        if spec.kind == "histogram":
            histogram = Histogram()
            histogram.record_many([0.0007, 0.25, 20.0])
            exemplar = Exemplar(0.25, 1.7e9, {"request_id": "a-1"})
            samples.append(HistogramSample(spec, histogram, labels, (exemplar,), 1.6e9))
        else:
            created = 1_600_000_000.125 if spec.kind == "counter" else None
            samples.append(Sample(spec, 1_234_567.25, labels, created))
    return samples


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_every_metric_of_the_catalogue_is_written_as_prometheus_client_would(
    accept: str,
) -> None:
    samples = every_metric()

    body, _ = exposition.render(samples, accept=accept)

    write = openmetrics.generate_latest if accept else text_format.generate_latest
    assert body == write(Reference(samples, created=bool(accept)))  # type: ignore[arg-type]
    assert body.count(b"# TYPE ") == len(CATALOGUE)


@pytest.mark.parametrize("labels", [("m",), ("m", "1", "2")])
def test_a_sample_with_too_few_or_too_many_labels_is_refused_by_name(
    labels: tuple[str, ...],
) -> None:
    spec = next(s for s in CATALOGUE if s.name == "triton_model_ready")

    with pytest.raises(ValueError, match="triton_model_ready takes the labels"):
        exposition.render([Sample(spec, 1, labels)])


def test_protobuf_carries_when_each_total_began() -> None:
    body, _ = exposition.render(every_metric(), accept=PROTOBUF)

    found: dict[str, float | None] = {}
    for message in delimited(body):
        (metric,) = message.metric
        total = metric.counter if message.type == COUNTER else metric.histogram
        time = total.created_timestamp
        known = total.HasField("created_timestamp")
        found[message.name] = time.seconds + time.nanos / 1e9 if known else None
    expected = {"counter": 1_600_000_000.125, "histogram": 1.6e9}
    assert found == {spec.name: expected.get(spec.kind) for spec in CATALOGUE}


COUNTER = 0
