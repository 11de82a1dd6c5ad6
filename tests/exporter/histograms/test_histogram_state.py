"""A latency histogram's state, whole and damaged."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from latencies import ANY_LATENCY, histogram_of, samples_of

from exporter.histograms.histogram import Histogram


@given(samples_of(ANY_LATENCY, 0))
def test_a_state_survives_json(values):
    histogram = histogram_of(values)
    text = json.dumps(histogram.to_state(), allow_nan=False)
    restored = Histogram.from_state(json.loads(text))
    assert restored == histogram
    assert restored.sum == histogram.sum


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version"),
        ({"version": None}, "version"),
        ({"version": True}, "version"),
        ({"schema": 3}, "schema"),
        ({"counts": "11"}, "counts"),
        ({"counts": [1] * 1601}, "counts"),
        ({"counts": [1, -1, 2]}, r"counts\.1"),
        ({"counts": [1.0]}, r"counts\.0"),
        ({"counts": [True]}, r"counts\.0"),
        ({"counts": [2**60]}, "count is 1152921504606846976; want at most"),
        ({"counts": [10**40]}, "want at most"),
        ({"zero_count": None}, "zero_count"),
        ({"prometheus_offset": 641}, "prometheus_offset is 641; want"),
        ({"prometheus_offset": -960}, "prometheus_offset is -960; want"),
        ({"prometheus_offset": "0"}, "prometheus_offset"),
        ({"sum": None}, "sum"),
        ({"sum": True}, "sum"),
        ({"sum": math.nan}, "sum"),
        ({"sum": -1.0}, "sum"),
        ({"sum": 1e6}, "sum is 1000000.0; want .* for these counts"),
        ({"sum": 0.0}, "sum is 0.0; want .* for these counts"),
        ({"min": 5.0}, "min is 5.0; want a value in bucket"),
        ({"max": "1"}, "max"),
        ({"max": 10**400}, "max"),
        ({"max": 0.001}, "max is 0.001; want a value in bucket"),
        ({"counts": []}, "sum, min or max is 'given'; want none"),
    ],
)
def test_a_state_that_is_wrong_is_refused_with_the_reason(change, message):
    state = histogram_of([0.5, 0.5, 0.5]).to_state() | change
    with pytest.raises(ValueError, match=f"HistogramState\n.*{message}"):
        Histogram.from_state(state)


def test_a_state_that_is_no_mapping_is_refused():
    with pytest.raises(ValueError, match="valid dictionary"):
        Histogram.from_state([1])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted(Histogram().to_state())),
    json_values,
    samples_of(ANY_LATENCY, 0),
)
def test_a_damaged_state_is_refused_or_gives_a_histogram_that_works(key, value, values):
    state = histogram_of(values).to_state() | {key: value}
    try:
        histogram = Histogram.from_state(state)
    except ValueError:
        return
    histogram.record(0.5)
    assert histogram.cumulative([math.inf]) == (histogram.count,)
    assert histogram.quantile(0.5) is not None
    assert Histogram.from_state(histogram.to_state()) == histogram
