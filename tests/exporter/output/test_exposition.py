"""Hostile labels on a page, which format a client gets, and Triton's page read."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import catalogue
from exporter.histograms.histogram import Histogram
from exporter.output import exposition
from exporter.samples import Exemplar, HistogramSample, Sample

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PROTOBUF = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
    "encoding=delimited"
)
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


def timed(*seconds, exemplars=(), labels):
    histogram = Histogram()
    histogram.record_many(list(seconds))
    return HistogramSample(catalogue.PROBE_DURATION, histogram, labels, exemplars)


# Labels.


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


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_exemplar_that_is_too_long_costs_only_itself(bad):
    exemplars = [
        Exemplar(
            seconds, 1.7e9, {"request_id": f"r{place}".ljust(118 + (place == bad), "x")}
        )
        for place, seconds in enumerate((0.0001, 0.1, 100.0))
    ]
    labels = ("m", "1", "grpc", "p")
    samples = [timed(0.0001, 0.1, 100.0, exemplars=exemplars, labels=labels)]
    body, _ = exposition.render(samples, accept=OPENMETRICS)
    found = [place for place in range(3) if f'request_id="r{place}x' in body.decode()]
    assert found == [place for place in range(3) if place != bad]


# Negotiation.


NEWER = "application/openmetrics-text;version=2.0.0"
UNREADABLE_FIRST = "text/html;q=high,application/openmetrics-text;version=1.0.0"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/plain;version=0.0.4", "text/plain"),
        ("text/plain, application/openmetrics-text;q=0.5", "text/plain"),
        ("application/openmetrics-text;q=0.5, text/plain", "text/plain"),
        (
            "application/openmetrics-text;q=0.5, text/plain;q=0.4",
            "application/openmetrics-text",
        ),
        ("APPLICATION/OpenMetrics-Text ; Q=1.0", "application/openmetrics-text"),
        ("application/openmetrics-text;q=0", "text/plain"),
        (UNREADABLE_FIRST, "application/openmetrics-text"),
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
        (f"{PROTOBUF};q=0.3, {OPENMETRICS}", OPENMETRICS),
        (f"{PROTOBUF};q=0.3, text/plain", "text/plain"),
        ("application/vnd.google.protobuf;encoding=delimited", "text/plain"),
        ("application/openmetrics-text;q=0, text/plain;q=0.1", "text/plain"),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/plain"),
        (";;;q=,,=,application/openmetrics-textual", "text/plain"),
        ("application/openmetrics-text;q=nan", "text/plain"),
    ],
)
def test_the_client_decides_by_its_qualities(accept, expected):
    body, headers = exposition.render([Sample(catalogue.UP, 1)], accept=accept)
    media = headers["content-type"].split(";")[0]
    assert media == expected.split(";")[0]
    assert (body[:1] == b"#") == (media != "application/vnd.google.protobuf")
    assert body.endswith(b"# EOF\n") == (media == "application/openmetrics-text")
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
        ("br, gzip;q=0.8", True),
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
