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
        ({"version": 2}, "version is 2; expected 1"),
        ({"version": None}, "version is None; expected 1"),
        ({"version": True}, "version is True; expected 1"),
        ({"schema": 3}, "schema is 3; expected 5"),
        ({"counts": "11"}, "counts is '11'; expected a list"),
        ({"counts": [1] * 1601}, "counts is .*; expected a list of up to 1600"),
        ({"counts": [1, -1, 2]}, "-1; expected a whole number >= 0"),
        ({"counts": [1.0]}, "1.0; expected a whole number >= 0"),
        ({"counts": [True]}, "True; expected a whole number >= 0"),
        ({"counts": [2**60]}, "count is 1152921504606846976; expected at most"),
        ({"counts": [10**40]}, "expected at most"),
        ({"zero_count": None}, "None; expected a whole number >= 0"),
        ({"prometheus_offset": 641}, "prometheus_offset is 641; expected"),
        ({"prometheus_offset": -960}, "prometheus_offset is -960; expected"),
        ({"prometheus_offset": "0"}, "prometheus_offset is '0'; expected"),
        ({"sum": None}, "sum is None; expected a number"),
        ({"sum": True}, "sum is True; expected a number"),
        ({"sum": math.nan}, "sum is nan; expected a finite number"),
        ({"sum": -1.0}, "sum is -1.0; expected a finite number"),
        ({"sum": 1e6}, "sum is 1000000.0; expected .* for these counts"),
        ({"sum": 0.0}, "sum is 0.0; expected .* for these counts"),
        ({"min": 5.0}, "min is 5.0; expected a value in bucket"),
        ({"max": "1"}, "max is '1'; expected a number"),
        ({"max": 10**400}, "max is .*; expected a finite number"),
        ({"max": 0.001}, "max is 0.001; expected a value in bucket"),
        ({"counts": []}, "sum, min or max is 'given'; expected absent"),
    ],
)
def test_a_state_that_is_wrong_is_refused_with_the_reason(change, message):
    state = histogram_of([0.5, 0.5, 0.5]).to_state() | change
    with pytest.raises(ValueError, match="^histogram state: .*" + message):
        Histogram.from_state(state)


def test_a_state_that_is_no_mapping_is_refused():
    with pytest.raises(ValueError, match=r"^histogram state: .* \[1\]; expected a map"):
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
