"""A latency histogram's counts under classic bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latencies import ANY_LATENCY, histogram_of, samples_of

from exporter.histograms.buckets import (
    GROWTH,
    MIDDLE,
    ZERO_THRESHOLD,
    slot_of,
    upper_bound,
)


@given(
    samples_of(ANY_LATENCY),
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20),
)
def test_classic_counts_are_exact_for_a_bound_within_1_09_percent(values, bounds):
    counts = histogram_of(values).cumulative(bounds)
    assert len(counts) == len(bounds)
    for bound, count in zip(bounds, counts, strict=True):
        off = max(bound * 0.01095, 0.0 if bound > ZERO_THRESHOLD else ZERO_THRESHOLD)
        least = np.count_nonzero(values <= bound - off)
        assert least <= count <= np.count_nonzero(values <= bound + off)


@given(samples_of(ANY_LATENCY), st.integers(-959, 639))
def test_a_classic_count_under_a_bucket_bound_is_exact(values, index):
    bound = upper_bound(index)
    assert histogram_of(values).cumulative([bound]) == (np.sum(values <= bound),)


@given(samples_of(ANY_LATENCY), samples_of(ANY_LATENCY), st.lists(st.floats(-1.0, 1e7)))
def test_classic_counts_never_fall_as_time_or_bounds_grow(before, after, bounds):
    bounds = [*sorted(bounds), math.inf]
    histogram = histogram_of(before)
    earlier = histogram.cumulative(bounds)
    histogram.record_many(after)
    later = histogram.cumulative(bounds)
    assert list(later) == sorted(later)
    assert all(e <= count for e, count in zip(earlier, later, strict=True))
    assert later[-1] == histogram.count


def test_a_straddling_bucket_counts_from_its_geometric_midpoint_on():
    histogram = histogram_of([1.0])
    middle = float(MIDDLE[slot_of(1.0) - 1])
    assert middle == pytest.approx(GROWTH**-0.5)  # of (2^(-1/32), 1]
    bounds = [math.nextafter(middle, 0.0), middle, 1.0]
    assert histogram.cumulative(bounds) == (0, 1, 1)


def test_classic_bounds_may_be_negative_unordered_or_none_but_not_nan():
    histogram = histogram_of([0.0, 0.01, 0.02])
    assert histogram.cumulative([]) == ()
    assert histogram.cumulative([math.inf, 0.015, -1.0, 0.0]) == (3, 2, 0, 1)
    with pytest.raises(ValueError, match="a bucket bound is NaN"):
        histogram.cumulative([0.1, math.nan])
