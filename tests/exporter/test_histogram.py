"""The latency histogram against exact answers from all the values."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from exporter.histogram import Histogram

LATENCIES = arrays.arrays(
    np.float64,
    st.integers(1, 200),
    elements=st.floats(1e-6, 3600.0),
)
QUANTILES = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)


def histogram_of(values):
    histogram = Histogram()
    histogram.record_many(values)
    return histogram


def exact_quantile(values, q):
    """By whole numbers: the least value with at least a share q at or below it."""
    rank = max(-(-round(q * 1000) * len(values) // 1000), 1)
    return float(np.sort(values)[rank - 1])


@given(LATENCIES, QUANTILES)
def test_a_quantile_is_within_1_09_percent_of_the_exact_one(values, q):
    exact = exact_quantile(values, q)
    assert abs(histogram_of(values).quantile(q) - exact) <= 0.0109 * exact


@given(LATENCIES, LATENCIES)
def test_merging_equals_recording_everything_once(left, right):
    assert histogram_of(left) + histogram_of(right) == histogram_of(
        np.concatenate([left, right])
    )


@given(LATENCIES)
def test_recording_one_by_one_equals_recording_an_array(values):
    one_by_one = Histogram()
    for value in values.tolist():
        one_by_one.record(value)
    assert one_by_one == histogram_of(values)


@given(LATENCIES)
def test_a_state_survives_json(values):
    histogram = histogram_of(values)
    text = json.dumps(histogram.to_state())
    assert Histogram.from_state(json.loads(text)) == histogram


@pytest.mark.parametrize("bad", [-1.0, -1e-300, math.nan, math.inf, -math.inf])
def test_a_bad_value_is_refused_with_its_whole_batch(bad):
    histogram = Histogram()
    with pytest.raises(ValueError, match="was recorded; expected finite seconds"):
        histogram.record(bad)
    with pytest.raises(ValueError, match="was recorded; expected finite seconds"):
        histogram.record_many([1.0, bad, 2.0])
    assert histogram == Histogram()
