"""What a scrape reads back: hostile labels, exemplars, buckets, and whatever is asked."""

from __future__ import annotations

import gzip
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from exporter import catalogue, exposition
from exporter.catalogue import CATALOGUE
from exporter.histogram import Histogram
from exporter.samples import BucketSample, Exemplar, HistogramSample, Sample

PATIENT = settings(deadline=None)  # a busy machine is no failure
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PROTOBUF = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
    "encoding=delimited"
)
PARSERS = {
    "": text_string_to_metric_families,
    OPENMETRICS: openmetrics_parser.text_string_to_metric_families,
}
LABELS = ("m", "1", "grpc", "synthetic")
HOSTILE = [
    'quote"',
    "back\\slash",
    "new\nline",
    'all\\"\n"\\n',
    "\r\x0b\x0c\x1c\x85\u2028\u2029",
    "} 1\ntriton_up 0",
    "# EOF",
    "%s %(x)s {} {0}",
    " ",
    "",
    "ünïcødé 🙂",
    "a=b,c",
    "\\",
    "\x00\x1b[31m",
]


def lines_of(samples, accept=""):
    body, _ = exposition.render(samples, accept=accept)
    return body.decode().split("\n")


def parsed(samples, accept=""):
    body, _ = exposition.render(samples, accept=accept)
    return [s for f in PARSERS[accept](body.decode()) for s in f.samples]


def timed(*seconds, exemplars=(), labels=LABELS):
    histogram = Histogram()
    histogram.record_many(list(seconds))
    return HistogramSample(catalogue.PROBE_DURATION, histogram, labels, exemplars)


# Labels.


@pytest.mark.parametrize("accept", PARSERS, ids=["text", "openmetrics"])
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_label_reads_back_as_it_was(value, accept):
    samples = [
        Sample(catalogue.MODEL_READY, 1, (value, "1")),
        Sample(catalogue.REQUESTS, 2, ("m", value, "success")),
        timed(0.1, labels=(value, "1", "grpc", "p")),
        Sample(catalogue.SERVER_INFO, 1, (value, value)),
    ]
    found = parsed(samples, accept)
    assert {s.labels.get("model", value) for s in found} <= {value, "m"}
    assert [s.value for s in found if s.name == "triton_model_ready"] == [1]
    assert not [s for s in found if s.name == "triton_up"]
    info = next(s for s in found if s.name == "triton_server_info")
    assert info.labels == {"server": value, "version": value}


@pytest.mark.parametrize("accept", ["", OPENMETRICS, PROTOBUF])
def test_half_a_surrogate_pair_costs_its_own_character_and_not_the_page(accept):
    exemplar = Exemplar(0.1, 1.7e9, {"request_id": "\udfff"})
    samples = [
        Sample(catalogue.MODEL_READY, 1, ("a\ud800b", "1")),
        timed(0.1, exemplars=(exemplar,), labels=("\ud800", "1", "grpc", "p")),
        Sample(catalogue.UP, 1),
    ]
    body, _ = exposition.render(samples, accept=accept)
    assert b"a?b" in body
    assert b"triton_up" in body


def test_the_order_of_label_values_is_that_of_the_catalogue():
    (sample,) = parsed([Sample(catalogue.REQUESTS, 1, ("m", "2", "failure"))])
    assert sample.labels == {"model": "m", "version": "2", "outcome": "failure"}


# Kinds and values.


def families_of(samples, accept):
    body, _ = exposition.render(samples, accept=accept)
    return {f.name: f for f in PARSERS[accept](body.decode())}


def test_an_info_is_one_in_openmetrics_and_a_gauge_in_text():
    samples = [Sample(catalogue.BUILD_INFO, 1, ("0.1.0", "3.11.2"))]
    found = families_of(samples, OPENMETRICS)["tritonwatch_build"]
    assert (found.type, found.samples[0].name) == ("info", "tritonwatch_build_info")
    found = families_of(samples, "")["tritonwatch_build_info"]
    assert (found.type, found.samples[0].value) == ("gauge", 1)


@pytest.mark.parametrize("accept", PARSERS, ids=["text", "openmetrics"])
def test_a_counter_has_its_total_once(accept):
    samples = [Sample(catalogue.BUSY, 1.5, ("m", "1"))]
    (found,) = families_of(samples, accept).values()
    assert found.type == "counter"
    assert [s.name for s in found.samples] == ["triton_model_busy_seconds_total"]


def test_units_are_told_in_openmetrics():
    samples = [Sample(catalogue.BUSY, 1.5, ("m", "1")), Sample(catalogue.UP, 1)]
    found = families_of(samples, OPENMETRICS)
    assert found["triton_model_busy_seconds"].unit == "seconds"
    assert found["triton_up"].unit == ""


@pytest.mark.parametrize("accept", PARSERS, ids=["text", "openmetrics"])
@PATIENT
@given(value=st.floats() | st.integers(-(2**53), 2**53) | st.booleans())
def test_any_number_reads_back_as_it_was(accept, value):
    (sample,) = parsed([Sample(catalogue.UP, value)], accept)
    same = math.isnan(value) and math.isnan(sample.value)
    assert same or sample.value == value


@pytest.mark.parametrize("accept", PARSERS, ids=["text", "openmetrics"])
def test_every_metric_of_the_catalogue_is_read_by_the_parser(accept):
    samples = [
        BucketSample(spec, tuple(1.0 for _ in spec.buckets), 2, 3, labels)
        if spec.kind == "histogram"
        else Sample(spec, 1, labels)
        for spec in CATALOGUE
        for labels in [tuple("0.5" if n == "quantile" else "x" for n in spec.labels)]
    ]
    found = families_of(reversed(samples), accept)
    assert len(found) == len(CATALOGUE)
    assert sum(
        s.name.endswith("_count") for f in found.values() for s in f.samples
    ) == (sum(spec.kind == "histogram" for spec in CATALOGUE))


def test_metrics_come_in_the_order_of_the_catalogue():
    samples = [Sample(spec, 1) for spec in reversed(CATALOGUE) if not spec.labels]
    types = [line.split()[2] for line in lines_of(samples) if line.startswith("# TYPE")]
    expected = [spec.name for spec in CATALOGUE if not spec.labels]
    assert types == expected


def test_nothing_known_is_an_empty_page_that_parsers_take():
    assert exposition.render([])[0] == b""
    assert parsed([]) == parsed([], OPENMETRICS) == []


# Histograms.


@PATIENT
@given(st.lists(st.floats(0, 100), max_size=30))
def test_buckets_never_fall_and_the_last_one_is_the_count(seconds):
    for accept in PARSERS:
        found = parsed([timed(*seconds)], accept)
        buckets = [s for s in found if s.name.endswith("_bucket")]
        counts = [s.value for s in buckets]
        assert counts == sorted(counts)
        assert buckets[-1].labels["le"] == "+Inf"
        assert counts[-1] == len(seconds)
        assert next(s.value for s in found if s.name.endswith("_count")) == len(seconds)
        total = next(s.value for s in found if s.name.endswith("_sum"))
        assert total == pytest.approx(sum(seconds))


@pytest.mark.parametrize("accept", PARSERS, ids=["text", "openmetrics"])
def test_every_bound_of_every_histogram_reads_back_as_declared(accept):
    for spec in CATALOGUE:
        if spec.kind != "histogram":
            continue
        counts = tuple(float(place) for place, _ in enumerate(spec.buckets))
        labels = tuple("x" for _ in spec.labels)
        found = parsed([BucketSample(spec, counts, 99, 1.0, labels)], accept)
        buckets = [s for s in found if s.name.endswith("_bucket")]
        assert [float(s.labels["le"]) for s in buckets] == [*spec.buckets, math.inf]
        assert [s.value for s in buckets] == [*counts, 99]


def test_whole_bounds_are_written_with_a_point_as_openmetrics_wants():
    samples = [BucketSample(catalogue.BATCH_SIZE, (0.0,) * 9, 0, 0, ("m", "1"))]
    text = "\n".join(lines_of(samples, OPENMETRICS))
    assert 'le="1.0"' in text
    assert 'le="256.0"' in text
    assert 'le="0.0005"' in "\n".join(lines_of([timed(0.1)], OPENMETRICS))


BOUNDS = (0.0, *catalogue.LATENCY_BOUNDS, math.inf)


@PATIENT
@given(st.lists(st.floats(1e-6, 20), min_size=1, max_size=5, unique=True))
def test_an_exemplar_lies_in_the_bucket_it_stands_for(seconds):
    exemplars = tuple(
        Exemplar(value, 1.7e9 + place, {"request_id": f"tritonwatch-{place}"})
        for place, value in enumerate(seconds)
    )
    found = parsed([timed(*seconds, exemplars=exemplars)], OPENMETRICS)
    buckets = [s for s in found if s.name.endswith("_bucket")]
    shown = [s for s in buckets if s.exemplar]
    assert shown
    for sample in shown:
        upper = float(sample.labels["le"])
        lower = BOUNDS[BOUNDS.index(upper) - 1]
        assert lower < sample.exemplar.value <= upper
        place = seconds.index(sample.exemplar.value)
        assert sample.exemplar.labels == {"request_id": f"tritonwatch-{place}"}
        assert float(sample.exemplar.timestamp) == 1.7e9 + place


def test_an_exemplar_on_a_bound_belongs_below_it():
    exemplar = Exemplar(0.005, 1.7e9, {"request_id": "x"})
    found = parsed([timed(0.005, exemplars=(exemplar,))], OPENMETRICS)
    assert [s.labels["le"] for s in found if s.exemplar] == ["0.005"]


def test_text_knows_no_exemplars():
    exemplar = Exemplar(0.005, 1.7e9, {"request_id": "x"})
    assert not any(
        " # " in line for line in lines_of([timed(0.005, exemplars=(exemplar,))])
    )


# Negotiation.


NEWER = "application/openmetrics-text;version=2.0.0"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/plain, application/openmetrics-text;q=0.5", "text/plain"),
        ("application/openmetrics-text;q=0.5, text/plain", "text/plain"),
        (
            "application/openmetrics-text;q=0.5, text/plain;q=0.4",
            "application/openmetrics-text",
        ),
        ("APPLICATION/OpenMetrics-Text ; Q=1.0", "application/openmetrics-text"),
        ("application/openmetrics-text;q=0", "text/plain"),
        (
            'application/openmetrics-text; version="1.0.0"',
            "application/openmetrics-text",
        ),
        (
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text",
        ),
        ("application/openmetrics-text; version=2.0.0, */*;q=0.1", "text/plain"),
        (f"{NEWER};q=0.9,{OPENMETRICS};q=0.8,text/plain;q=0.3", OPENMETRICS),
        (PROMETHEUS, OPENMETRICS),
        (f"{PROTOBUF};q=0.6,{PROMETHEUS}", PROTOBUF),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/plain"),
        (";;;q=,,=,application/openmetrics-textual", "text/plain"),
        ("application/openmetrics-text;q=nan", "text/plain"),
    ],
)
def test_the_client_decides_by_its_qualities(accept, expected):
    _, headers = exposition.render([Sample(catalogue.UP, 1)], accept=accept)
    assert headers["content-type"].split(";")[0] == expected.split(";")[0]
    assert headers["vary"] == "accept, accept-encoding"


@pytest.mark.parametrize(
    ("accept_encoding", "packed"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP;q=0.1, identity", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, identity", False),
        ("*", False),
        ("x-gzip-like", False),
    ],
)
def test_gzip_is_for_those_who_ask_for_it(accept_encoding, packed):
    samples = [Sample(catalogue.UP, 1)]
    body, headers = exposition.render(samples, accept_encoding=accept_encoding)
    assert headers.get("content-encoding") == ("gzip" if packed else None)
    assert (gzip.decompress(body) if packed else body) == exposition.render(samples)[0]


# Reading Triton's page.


def series_of(text):
    return list(exposition.parse_text(text.encode()))


def test_tritons_counters_keep_their_names():
    page = (
        "# HELP nv_inference_count Number of inferences\n"
        "# TYPE nv_inference_count counter\n"
        'nv_inference_count{model="m",version="1"} 3\n'
    )
    assert series_of(page) == [
        ("nv_inference_count", {"model": "m", "version": "1"}, 3.0)
    ]


@pytest.mark.parametrize("value", HOSTILE)
def test_no_model_name_breaks_the_reading_of_a_page(value):
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    page = f'nv_a{{model="{escaped}"}} 1\nnv_b 2\n'
    assert series_of(page) == [("nv_a", {"model": value}, 1.0), ("nv_b", {}, 2.0)]


@pytest.mark.parametrize(
    "page",
    [b"\xff\xfe", b"<html>", b"nv_a{", b'nv_a{model="m} 1', b"nv_a one", b'{"a": 1}'],
)
def test_what_is_no_page_is_a_value_error(page):
    with pytest.raises(ValueError):
        list(exposition.parse_text(page))


@PATIENT
@given(
    st.lists(
        st.sampled_from(
            [*'a{}"=, 1\n\\#\té-', "NaN", 'nv_x{model="m"} 1\n', "le", "# TYPE", "\x85"]
        )
    ).map("".join)
)
def test_any_text_is_series_or_a_value_error(text):
    try:
        found = series_of(text)
    except ValueError:
        return
    assert all(isinstance(value, int | float) for _, _, value in found)
