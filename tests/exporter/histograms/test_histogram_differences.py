"""What came since an earlier state of a latency histogram."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from latencies import (
    ANY_LATENCY,
    LATENCIES,
    MICROSECOND_TO_HOUR,
    PROMISED_ERROR,
    THOUSANDTHS,
    exact_quantile,
    histogram_of,
    samples_of,
)

from exporter.histograms.buckets import ZERO_THRESHOLD
from exporter.histograms.histogram import Histogram


@given(samples_of(ANY_LATENCY, 0), samples_of(MICROSECOND_TO_HOUR, 0))
def test_since_holds_exactly_what_came_later(before, after):
    histogram = histogram_of(before)
    snapshot = histogram.copy()
    histogram.record_many(after)
    later, expected = histogram.since(snapshot), histogram_of(after)
    assert later.count == expected.count
    assert later.zero_count == expected.zero_count
    assert later.buckets().prometheus_offset == expected.buckets().prometheus_offset
    assert later.buckets().counts.tolist() == expected.buckets().counts.tolist()
    assert later.min in (None, expected.min)
    assert later.max in (None, expected.max)
    assert Histogram.from_state(json.loads(json.dumps(later.to_state()))) == later


@given(LATENCIES, LATENCIES, THOUSANDTHS)
def test_quantiles_of_a_difference_keep_the_promised_error(before, after, thousandths):
    histogram = histogram_of(before)
    snapshot = histogram.copy()
    histogram.record_many(after)
    exact = exact_quantile(after, thousandths)
    quantile = histogram.since(snapshot).quantile(thousandths / 1000)
    assert abs(quantile - exact) <= PROMISED_ERROR * exact


def test_a_difference_gives_only_the_extremes_that_are_new():
    histogram = histogram_of([0.01, 0.02])
    snapshot = histogram.copy()
    histogram.record_many([0.015, 0.03])
    later = histogram.since(snapshot)
    assert (later.min, later.max) == (None, 0.03)
    assert later.sum == pytest.approx(0.045)
    assert (later + histogram_of([0.001])).min is None


@pytest.mark.parametrize(
    ("values", "other"),
    [
        ([0.01, 0.02], [0.01, 0.02, 0.03]),  # one more
        ([0.01, 0.02], [0.01, 0.01]),  # more in one bucket
        ([0.01, 0.02], [0.5]),  # a bucket that is not there
        ([0.01, 0.02], [0.0]),  # a zero that is not there
        ([0.0, 0.01, 0.02], [0.0, 0.0, 0.01]),  # more zeros
        ([0.02], [0.0199]),  # the same bucket, but a smaller minimum
        ([0.01, 0.02], [0.0201]),  # the same bucket, but a greater maximum
    ],
)
def test_since_refuses_what_is_no_predecessor(values, other):
    with pytest.raises(ValueError, match="is not an earlier snapshot of"):
        histogram_of(values).since(histogram_of(other))


def test_since_refuses_a_predecessor_with_a_greater_sum():
    histogram = histogram_of([1.0, 1.0, 1.0, 1.0])
    state = histogram.to_state()
    state["sum"] = 3.95
    with pytest.raises(ValueError, match="is not an earlier snapshot of"):
        Histogram.from_state(state).since(histogram)


def test_the_sum_of_a_difference_is_one_that_its_buckets_allow():
    """Beside a sum of decades, the last digits are rounded: here up by two fifths."""
    histogram = Histogram()
    histogram.record(1e6, 1000)
    snapshot = histogram.copy()
    histogram.record(ZERO_THRESHOLD, 90)
    assert histogram.since(snapshot).sum == pytest.approx(90 * ZERO_THRESHOLD)
