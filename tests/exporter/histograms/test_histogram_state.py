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
    "change",
    [
        {"version": 2},
        {"version": None},
        {"schema": 3},
        {"counts": "x"},
        {"counts": [1] * 1601},
        {"counts": [1, -1, 2]},
        {"counts": [2**60]},
        {"counts": [10**40]},
        {"zero_count": None},
        {"prometheus_offset": 641},
        {"prometheus_offset": -960},
        {"sum": None},
        {"sum": math.nan},
        {"sum": -1.0},
        {"min": 5.0},
        {"max": "much"},
        {"max": 10**400},
        {"max": 0.001},
    ],
)
def test_a_state_that_no_histogram_has_is_refused(change):
    with pytest.raises(ValueError, match=r"histogram|found|count is"):
        Histogram.from_state(histogram_of([0.5, 0.5, 0.5]).to_state() | change)


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
