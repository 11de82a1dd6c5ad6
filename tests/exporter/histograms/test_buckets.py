"""The bucket layout against exact arithmetic, and both index conventions."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.histograms.buckets import (
    FIRST_INDEX,
    HIGHEST_BOUND,
    LAST_INDEX,
    LAST_SLOT,
    UPPER,
    ZERO_THRESHOLD,
    prometheus_index,
    slot_of,
    tally,
    upper_bound,
)
from exporter.histograms.histogram import Histogram

INDEXES = st.integers(FIRST_INDEX, LAST_INDEX)
POSITIVE = st.floats(5e-324, 8e307)
# Values where an index can go wrong: on a bound, and one float to either side of it.
AT_BOUNDS = st.builds(
    lambda index, neighbour: neighbour(upper_bound(index)),
    INDEXES,
    st.sampled_from(
        [
            float,
            lambda bound: math.nextafter(bound, math.inf),
            lambda bound: math.nextafter(bound, 0.0),
        ]
    ),
)


def rounded_power(index):
    """2^(index / 32) to 60 digits, then rounded once to the nearest float."""
    with localcontext() as context:
        context.prec = 60
        return float(Decimal(2) ** (Decimal(index) / 32))


def test_every_bound_is_the_nearest_float_to_its_power_of_two():
    expected = [rounded_power(index) for index in range(FIRST_INDEX, LAST_INDEX + 1)]
    assert UPPER.tolist() == expected


@given(POSITIVE)
def test_a_value_lies_in_the_bucket_that_exact_arithmetic_gives(value):
    index = prometheus_index(value)
    if value in (upper_bound(index), upper_bound(index - 1)):
        return  # a rounded bound may lie on either side of the irrational one
    power = Fraction(value) ** 32
    assert Fraction(2) ** (index - 1) < power <= Fraction(2) ** index


@given(INDEXES)
def test_a_bound_belongs_to_the_bucket_below_it_and_the_next_float_does_not(index):
    bound = upper_bound(index)
    assert prometheus_index(bound) == index
    assert prometheus_index(math.nextafter(bound, math.inf)) == index + 1
    assert prometheus_index(math.nextafter(bound, 0.0)) == index


@pytest.mark.parametrize("exponent", range(-29, 21))
def test_a_power_of_two_closes_its_bucket_in_both_conventions(exponent):
    histogram = Histogram()
    histogram.record(2.0**exponent)
    buckets = histogram.buckets()
    # Prometheus i covers (base^(i-1), base^i]; OpenTelemetry i (base^i, base^(i+1)].
    assert buckets.prometheus_offset == 32 * exponent
    assert buckets.otel_offset == 32 * exponent - 1
    assert buckets.counts.tolist() == [1]


def test_buckets_are_contiguous_and_start_at_the_first_that_is_not_empty():
    histogram = Histogram()
    histogram.record_many([1.0, 1.0, upper_bound(3), upper_bound(-2)])
    buckets = histogram.buckets()
    assert buckets.prometheus_offset == -2
    assert buckets.counts.tolist() == [1, 0, 2, 0, 0, 1]


def test_buckets_of_nothing_are_empty():
    assert Histogram().buckets().counts.tolist() == []


@pytest.mark.parametrize(
    ("value", "slot"),
    [
        (0.0, 0),
        (5e-324, 0),
        (ZERO_THRESHOLD, 0),
        (math.nextafter(ZERO_THRESHOLD, 1.0), 1),
        (HIGHEST_BOUND, LAST_SLOT),
        (math.nextafter(HIGHEST_BOUND, math.inf), LAST_SLOT),
        (1.7976931348623157e308, LAST_SLOT),
    ],
)
def test_the_span_ends_in_the_zero_bucket_and_in_the_last_one(value, slot):
    assert slot_of(value) == slot
    assert tally(np.array([value]), 0, LAST_SLOT).nonzero()[0].tolist() == [slot]


@given(st.lists(POSITIVE | AT_BOUNDS | st.just(0.0), min_size=1, max_size=50))
def test_an_array_is_counted_as_its_values_are_one_by_one(values):
    slots = [slot_of(value) for value in values]
    first, last = min(slots), max(slots)
    expected = np.bincount(np.array(slots) - first, minlength=last - first + 1)
    assert tally(np.array(values), first, last).tolist() == expected.tolist()


def test_every_bound_and_its_neighbours_are_counted_alike_in_an_array():
    values = np.concatenate(
        [UPPER, np.nextafter(UPPER, np.inf), np.nextafter(UPPER, 0.0)]
    )
    expected = np.bincount([slot_of(v) for v in values.tolist()])
    assert tally(values, 0, LAST_SLOT).tolist() == expected.tolist()
