"""The latency histogram against exact answers from all the values."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.buckets import (
    GROWTH,
    LAST_SLOT,
    MIDDLE,
    ZERO_THRESHOLD,
    slot_of,
    upper_bound,
)
from exporter.histogram import Histogram
from exporter.histogram_state import MAX_COUNT

PATIENT = settings(deadline=None)
PROMISED_ERROR = 0.0109
MICROSECOND_TO_HOUR = st.floats(1e-6, 3600.0)
# Floats over the whole range are tiny, most of them: one in four is enough of those.
ANY_LATENCY = st.one_of(
    MICROSECOND_TO_HOUR,
    st.floats(0.001, 0.1),
    st.integers(-960, 640).map(upper_bound),
    st.floats(0.0, 1.7e308),
)


def samples_of(elements, min_size=1):
    return st.lists(elements, min_size=min_size, max_size=60).map(np.array)


LATENCIES = samples_of(MICROSECOND_TO_HOUR)
# Many in few buckets: within one octave, and on a coarse grid with repeats.
CLUSTERED = samples_of(st.floats(0.01, 0.02) | st.sampled_from([0.01, 0.0125, 0.25]))
THOUSANDTHS = st.integers(0, 1000)


def histogram_of(*batches):
    histogram = Histogram()
    for batch in batches:
        histogram.record_many(batch)
    return histogram


def exact_quantile(values, thousandths):
    """In whole numbers: the least value with that share of all at or below it."""
    rank = max(-(-thousandths * len(values) // 1000), 1)
    return float(np.sort(values)[rank - 1])


@PATIENT
@given(LATENCIES | CLUSTERED, THOUSANDTHS)
def test_a_quantile_is_within_1_09_percent_of_the_exact_one(values, thousandths):
    exact = exact_quantile(values, thousandths)
    quantile = histogram_of(values).quantile(thousandths / 1000)
    assert abs(quantile - exact) <= PROMISED_ERROR * exact


@PATIENT
@given(samples_of(ANY_LATENCY.filter(lambda v: v <= 1e6)), THOUSANDTHS)
def test_below_the_zero_threshold_a_quantile_is_within_a_nanosecond(values, q):
    exact = exact_quantile(values, q)
    error = abs(histogram_of(values).quantile(q / 1000) - exact)
    assert error <= max(PROMISED_ERROR * exact, 1e-9)


@PATIENT
@given(samples_of(ANY_LATENCY))
def test_the_first_and_the_last_quantile_are_the_exact_extremes(values):
    histogram = histogram_of(values)
    assert histogram.quantile(0.0) == histogram.min == values.min()
    assert histogram.quantile(1.0) == histogram.max == values.max()


@PATIENT
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


@PATIENT
@given(samples_of(ANY_LATENCY, 0), samples_of(ANY_LATENCY, 0))
def test_merging_equals_recording_everything_once_and_commutes(left, right):
    once = histogram_of(np.concatenate([left, right]))
    assert histogram_of(left) + histogram_of(right) == once
    assert histogram_of(right) + histogram_of(left) == once


@PATIENT
@given(samples_of(ANY_LATENCY), samples_of(ANY_LATENCY), samples_of(ANY_LATENCY))
def test_merging_is_associative(a, b, c):
    first, second, third = histogram_of(a), histogram_of(b), histogram_of(c)
    assert (first + second) + third == first + (second + third)


@PATIENT
@given(samples_of(ANY_LATENCY), samples_of(ANY_LATENCY))
def test_merging_leaves_the_other_as_it_was(left, right):
    whole, other = histogram_of(left), histogram_of(right)
    whole.merge(other)
    whole.record(0.5)
    assert other == histogram_of(right)


@PATIENT
@given(LATENCIES)
def test_a_histogram_can_be_merged_with_itself(values):
    histogram = histogram_of(values)
    histogram.merge(histogram)
    assert histogram == histogram_of(values, values)


@PATIENT
@given(samples_of(ANY_LATENCY))
def test_recording_one_by_one_equals_recording_an_array(values):
    one_by_one = Histogram()
    for value in values.tolist():
        one_by_one.record(value)
    assert one_by_one == histogram_of(values)


@PATIENT
@given(ANY_LATENCY, st.integers(1, 1000))
def test_recording_a_count_equals_recording_that_often(value, count):
    counted = Histogram()
    counted.record(value, count)
    assert counted == histogram_of(np.full(count, value))


@PATIENT
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


def test_a_copy_is_independent():
    histogram = histogram_of([0.01, 0.02])
    twin = histogram.copy()
    twin.record(0.01)
    assert histogram == histogram_of([0.01, 0.02])
    assert twin == histogram_of([0.01, 0.02, 0.01])


@pytest.mark.parametrize(
    "other",
    [[0.01], [0.01, 0.02, 0.02], [0.01, 0.0201], [0.01, 0.025], [0.0, 0.03], []],
)
def test_different_histograms_are_not_equal(other):
    assert histogram_of([0.01, 0.02]) != histogram_of(other)
    assert histogram_of([0.01, 0.02]) != "histogram"


@PATIENT
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


@PATIENT
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
    "other",
    [
        [0.01, 0.02, 0.03],  # one more
        [0.01, 0.01],  # more in one bucket
        [0.5],  # a bucket that is not there
        [0.0],  # a zero that is not there
        [0.0199],  # the same bucket, but a smaller minimum
        [0.0201],  # the same bucket, but a greater maximum
    ],
)
def test_since_refuses_what_is_no_predecessor(other):
    histogram = (
        histogram_of([0.01, 0.02]) if other != [0.0199] else histogram_of([0.02])
    )
    with pytest.raises(ValueError, match="is no earlier snapshot of"):
        histogram.since(histogram_of(other))


def test_since_refuses_a_predecessor_with_more_zeros():
    with pytest.raises(ValueError, match="is no earlier snapshot of"):
        histogram_of([0.0, 0.01, 0.02]).since(histogram_of([0.0, 0.0, 0.01]))


def test_since_refuses_a_predecessor_with_a_greater_sum():
    histogram = histogram_of([1.0, 1.0, 1.0, 1.0])
    state = histogram.to_state()
    state["sum"] = 3.95
    with pytest.raises(ValueError, match="is no earlier snapshot of"):
        Histogram.from_state(state).since(histogram)


@PATIENT
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


@PATIENT
@given(samples_of(ANY_LATENCY), st.integers(-959, 639))
def test_a_classic_count_under_a_bucket_bound_is_exact(values, index):
    bound = upper_bound(index)
    assert histogram_of(values).cumulative([bound]) == (np.sum(values <= bound),)


@PATIENT
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


@PATIENT
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


@PATIENT
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


def test_the_histogram_needs_no_scipy():
    code = "import sys, exporter.histogram; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
