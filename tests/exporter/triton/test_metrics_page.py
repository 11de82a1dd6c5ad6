"""Triton's metrics page line by line: what cannot be read costs nothing but itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from exporter.triton.metrics_page import MAX_LINE_BYTES, lines_of, read_page

WANTED = lines_of({"vllm:a", "vllm:b"})
GOOD = b'vllm:a{model="m",version="1"} 7\n'


def read(body, most_series=100):
    return read_page(body, WANTED, most_series=most_series)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"vllm:b{", "malformed"),
        (b"vllm:b{}", "malformed"),
        (b"vllm:b 1 2 3", "malformed"),
        (b"vllm:b one", "malformed"),
        (b"vllm:b 1_000", "malformed"),
        (b'vllm:b{model="m} 1', "malformed"),
        (b'vllm:b{model="m"x} 1', "malformed"),
        (b'vllm:b{model="m",model="n"} 1', "malformed"),
        (b'vllm:b{model="\xff"} 1', "malformed"),
        (b"vllm:b Nan", "value"),
        (b"vllm:b -Inf", "value"),
        (b"vllm:b 1e300", "value"),
        (b'vllm:b{model="' + b"m" * MAX_LINE_BYTES + b'"} 1', "too_long"),
        (b'vllm:b{model="' + b'\\"' * 10_000_000 + b'"} 1', "too_long"),
        (GOOD[:-1], "duplicate"),
    ],
    ids=lambda value: value[:24],
)
def test_a_line_that_is_refused_is_counted_and_the_rest_is_read(line, reason):
    for body in (line + b"\n" + GOOD, GOOD + line):
        page = read(body)
        assert [(s.name, s.value) for s in page.series] == [("vllm:a", 7)]
        assert page.refused == {reason: 1}


def test_a_description_with_a_line_break_does_no_harm():
    body = b"# HELP vllm:a A description\nof two lines {\n# TYPE vllm:a gauge\n" + GOOD
    page = read(body)
    assert len(page.series) == 1
    assert not page.refused


def test_a_description_that_forges_a_series_is_one_of_two():
    forged = b'# HELP vllm:a x\nvllm:a{model="m",version="1"} 666\n'
    assert read(forged + GOOD).refused == {"duplicate": 1}


def test_a_million_series_are_bounded():
    body = b"".join(b'vllm:a{model="%d"} 1\n' % place for place in range(200_000)) * 5
    page = read(body + b"vllm:b 1\n", most_series=1000)
    assert len(page.series) == 1000
    assert page.refused == {"too_many": 999_001}


def test_others_are_not_looked_at():
    page = read(b"vllm:ab 1\nvllm:c 2\nnv_energy_consumption{ \xff\n\n#\n")
    assert not page.series
    assert not page.refused


@given(st.text(), st.floats(allow_nan=False, min_value=-(2.0**60), max_value=2.0**60))
def test_what_is_written_as_text_is_read_as_it_was(label, value):
    registry = CollectorRegistry()
    Gauge("vllm:a", "x", ["model"], registry=registry).labels(label).set(value)
    try:
        body = generate_latest(registry)
    except UnicodeEncodeError:
        return
    (series,) = read(body).series
    assert series.labels == {"model": label}
    assert math.isclose(series.value, value)
