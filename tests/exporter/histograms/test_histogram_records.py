"""The latency histogram against exact answers from all the values."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latencies import (
    ANY_LATENCY,
    CLUSTERED,
    LATENCIES,
    PROMISED_ERROR,
    THOUSANDTHS,
    exact_quantile,
    histogram_of,
    samples_of,
)

from exporter.histograms.buckets import LAST_SLOT
from exporter.histograms.histogram import Histogram
from exporter.histograms.histogram_state import MAX_COUNT


@given(LATENCIES | CLUSTERED, THOUSANDTHS)
def test_a_quantile_is_within_1_09_percent_of_the_exact_one(values, thousandths):
    exact = exact_quantile(values, thousandths)
    quantile = histogram_of(values).quantile(thousandths / 1000)
    assert abs(quantile - exact) <= PROMISED_ERROR * exact


@given(samples_of(ANY_LATENCY.filter(lambda v: v <= 1e6)), THOUSANDTHS)
def test_below_the_zero_threshold_a_quantile_is_within_a_nanosecond(values, q):
    exact = exact_quantile(values, q)
    error = abs(histogram_of(values).quantile(q / 1000) - exact)
    assert error <= max(PROMISED_ERROR * exact, 1e-9)


@given(samples_of(ANY_LATENCY))
def test_the_first_and_the_last_quantile_are_the_exact_extremes(values):
    histogram = histogram_of(values)
    assert histogram.quantile(0.0) == histogram.min == values.min()
    assert histogram.quantile(1.0) == histogram.max == values.max()


@given(samples_of(ANY_LATENCY))
def test_quantiles_never_fall_as_q_grows(values):
    histogram = histogram_of(values)
    quantiles = [histogram.quantile(q / 50) for q in range(51)]
    assert quantiles == sorted(quantiles)


@pytest.mark.parametrize("q", [-0.001, 1.001, math.nan])
def test_a_quantile_outside_0_to_1_is_refused_even_when_empty(q):
    for histogram in (Histogram(), histogram_of([1.0])):
        with pytest.raises(ValueError, match="a quantile lies in 0 to 1"):
            histogram.quantile(q)


def test_an_empty_histogram_knows_nothing():
    empty = Histogram()
    assert (empty.count, empty.zero_count, empty.sum) == (0, 0, 0.0)
    assert empty.min is None
    assert empty.max is None
    assert empty.quantile(0.5) is None
    assert empty.quantile_interval(0.5) is None
    assert empty.cumulative([1.0, math.inf]) == (0, 0)
    assert empty + empty == empty
    assert Histogram.from_state(empty.to_state()) == empty


@given(samples_of(ANY_LATENCY, 0), samples_of(ANY_LATENCY, 0))
def test_merging_equals_recording_everything_once_and_commutes(left, right):
    once = histogram_of(np.concatenate([left, right]))
    assert histogram_of(left) + histogram_of(right) == once
    assert histogram_of(right) + histogram_of(left) == once


@given(samples_of(ANY_LATENCY), samples_of(ANY_LATENCY))
def test_merging_leaves_the_other_as_it_was(left, right):
    whole, other = histogram_of(left), histogram_of(right)
    whole.merge(other)
    whole.record(0.5)
    assert other == histogram_of(right)


@given(LATENCIES)
def test_a_histogram_can_be_merged_with_itself(values):
    histogram = histogram_of(values)
    histogram.merge(histogram)
    assert histogram == histogram_of(values, values)


@given(samples_of(ANY_LATENCY))
def test_recording_one_by_one_equals_recording_an_array(values):
    one_by_one = Histogram()
    for value in values.tolist():
        one_by_one.record(value)
    assert one_by_one == histogram_of(values)


@given(ANY_LATENCY, st.integers(1, 1000))
def test_recording_a_count_equals_recording_that_often(value, count):
    counted = Histogram()
    counted.record(value, count)
    assert counted == histogram_of(np.full(count, value))


@given(samples_of(st.floats(1e-6, 3600.0)))
def test_count_sum_and_extremes_are_those_of_the_values(values):
    histogram = histogram_of(values)
    assert histogram.count == values.size
    assert histogram.sum == pytest.approx(math.fsum(values), rel=1e-12)
    assert (histogram.min, histogram.max) == (values.min(), values.max())


def test_arrays_of_any_shape_and_type_are_taken():
    grid = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    strided = np.repeat(np.arange(1.0, 13.0), 2)[::2]
    assert histogram_of(grid) == histogram_of(strided) == histogram_of(range(1, 13))
    scalar = Histogram()
    scalar.record(np.float32(1.0))
    assert json.loads(json.dumps(scalar.to_state()))["sum"] == 1.0


def test_an_array_longer_than_a_chunk_is_counted_whole():
    values = np.random.default_rng(1).lognormal(-4.0, 1.0, 100_003)
    assert histogram_of(values) == histogram_of(values[:7], values[7:])


@pytest.mark.parametrize("bad", [-1.0, -5e-324, math.nan, math.inf, -math.inf])
def test_a_bad_value_is_refused_with_its_whole_batch(bad):
    histogram = histogram_of([0.5])
    with pytest.raises(ValueError, match="was recorded; expected finite seconds"):
        histogram.record(bad)
    with pytest.raises(ValueError, match=f"^{bad!r} was recorded; expected finite"):
        histogram.record_many([1.0, bad, 2.0])
    assert histogram == histogram_of([0.5])


@pytest.mark.parametrize("count", [0, -1, MAX_COUNT])
def test_a_count_that_cannot_be_is_refused(count):
    histogram = histogram_of([0.5])
    with pytest.raises(ValueError, match=f"^count is {count} with 1 recorded"):
        histogram.record(1.0, count)
    assert histogram == histogram_of([0.5])


def test_merging_stops_where_counts_would_stop_being_exact():
    histogram = Histogram()
    histogram.record(1.0, MAX_COUNT)
    before = histogram.copy()
    with pytest.raises(ValueError, match=f"at most {MAX_COUNT} in all"):
        histogram.merge(before)
    assert histogram == before


def test_zero_of_either_sign_goes_to_the_zero_bucket():
    for histogram in (histogram_of([0.0, -0.0]), Histogram()):
        histogram.record(-0.0)
        histogram.record(0.0)
        assert histogram.zero_count == histogram.count
        assert histogram.buckets().counts.size == 0
        assert math.copysign(1.0, histogram.min) == 1.0
        assert histogram.quantile(0.5) == 0.0


def test_memory_is_bounded_and_the_sum_saturates_whatever_the_values():
    histogram = histogram_of(2.0 ** np.arange(-1074.0, 1024.0, 1 / 64))
    histogram.record(1.7e308)
    histogram.merge(histogram)
    assert histogram.buckets().counts.size == LAST_SLOT
    assert histogram.sum == sys.float_info.max
    assert histogram.since(Histogram()) == histogram
    assert Histogram.from_state(histogram.to_state()) == histogram


@pytest.mark.parametrize(
    "other",
    [[0.01], [0.01, 0.02, 0.02], [0.01, 0.0201], [0.01, 0.025], [0.0, 0.03], []],
)
def test_different_histograms_are_not_equal(other):
    assert histogram_of([0.01, 0.02]) != histogram_of(other)
    assert histogram_of([0.01, 0.02]) != "histogram"
