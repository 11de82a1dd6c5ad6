"""The sliding window against a list of everything with its time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.histograms.histogram import Histogram
from exporter.histograms.windowed_histogram import WindowedHistogram

LATENCY = st.floats(1e-6, 3600.0)
# Halves of a slot of 2 s, so that many times fall on the edges of slots.
STEPS = st.integers(0, 60)


def histogram_of(values):
    histogram = Histogram()
    histogram.record_many(list(values))
    return histogram


@given(
    st.integers(-100, 10**6),
    st.lists(st.tuples(STEPS, st.lists(LATENCY, max_size=4)), max_size=40),
    STEPS,
)
def test_a_snapshot_holds_what_a_list_of_the_last_slots_holds(start, batches, rest):
    window = WindowedHistogram(20.0, 10)
    seen, now = [], float(start)
    for step, values in batches:
        now += step
        window.record_many(values, now)
        for value in values[:1]:
            window.record(value, now)
        seen += [(now, value) for value in values + values[:1]]
    now += rest
    oldest = (now // 2.0 - 9.0) * 2.0
    assert window.snapshot(now) == histogram_of(v for t, v in seen if t >= oldest)


@given(st.lists(st.tuples(st.integers(-50, 50), LATENCY), max_size=60))
def test_whatever_the_clock_does_a_snapshot_is_made_of_recent_records(steps):
    window, now, times = WindowedHistogram(20.0, 10), 0, []
    for step, value in steps:
        now += step
        window.record(value, now)
        times.append(now)
        count = window.snapshot(now).count
        # At least what this slot got since the clock last jumped by a window; at most
        # everything in a window's length to either side.
        assert 1 <= count <= sum(abs(t - now) <= 40 for t in times)


def test_a_small_step_back_keeps_everything_and_ages_it_rightly():
    window = WindowedHistogram(60.0, 6)
    window.record(0.1, 100.0)
    window.record(0.2, 75.0)
    assert window.snapshot(100.0) == histogram_of([0.1, 0.2])
    assert window.snapshot(130.0) == histogram_of([0.1])
    assert window.snapshot(160.0) == Histogram()


def test_a_clock_set_back_by_more_than_a_window_starts_a_new_window():
    window = WindowedHistogram(60.0, 6)
    window.record(0.1, 5000.0)
    window.record(0.2, 100.0)
    assert window.snapshot(100.0) == histogram_of([0.2])
    assert window.snapshot(159.0) == histogram_of([0.2])
    assert window.snapshot(160.0) == Histogram()


@pytest.mark.parametrize(("back_to", "kept"), [(50.0, [0.1, 0.2]), (49.0, [0.2])])
def test_the_ring_is_emptied_from_the_first_slot_on_that_it_does_not_hold(
    back_to, kept
):
    window = WindowedHistogram(60.0, 6)
    window.record(0.1, 100.0)
    window.record(0.2, back_to)
    assert window.snapshot(back_to) == histogram_of(kept)


def test_a_clock_set_back_does_not_freeze_an_idle_window():
    window = WindowedHistogram(60.0, 6)
    window.record(0.1, 5000.0)
    assert window.snapshot(100.0) == Histogram()


def test_a_snapshot_is_independent_of_what_comes_later():
    window = WindowedHistogram(60.0, 6)
    window.record(0.1, 0.0)
    snapshot = window.snapshot(0.0)
    window.record(0.2, 1.0)
    snapshot.record(0.3)
    assert window.snapshot(1.0) == histogram_of([0.1, 0.2])


def test_a_bad_value_leaves_the_window_as_it_was():
    window = WindowedHistogram(60.0, 6)
    window.record(0.1, 0.0)
    with pytest.raises(ValueError, match="was recorded; expected finite seconds"):
        window.record_many([0.2, -0.2], 1.0)
    assert window.snapshot(1.0) == histogram_of([0.1])


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_none_is_refused(now):
    window = WindowedHistogram(60.0, 6)
    with pytest.raises(ValueError, match="expected finite monotonic seconds"):
        window.record(0.1, now)
    with pytest.raises(ValueError, match="expected finite monotonic seconds"):
        window.snapshot(now)


@pytest.mark.parametrize(
    ("seconds", "slots"), [(0.0, 6), (-1.0, 6), (math.inf, 6), (math.nan, 6), (60.0, 0)]
)
def test_a_window_needs_a_length_and_slots(seconds, slots):
    with pytest.raises(ValueError, match="expected a finite length above 0"):
        WindowedHistogram(seconds, slots)
