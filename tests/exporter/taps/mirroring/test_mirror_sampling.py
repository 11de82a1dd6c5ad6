"""Token buckets: how much is taken, and that it stands for the rest."""

from __future__ import annotations

import random

import pytest
from clocks import Clock

from exporter.taps.mirroring import intake
from exporter.taps.mirroring.intake import Sampler


def sampler(seed=1):
    clock = Clock()
    return clock, Sampler(clock, random.Random(seed))  # noqa: S311 - prices


@pytest.mark.parametrize("rate", [0.1, 2.0, 20.0, 300.0])
def test_the_mean_rate_is_what_was_asked_for(rate):
    clock, taken = sampler()
    seconds, found = 5_000 / rate, 0
    steps = round(seconds * 4 * rate)
    for _ in range(steps):
        clock.now += seconds / steps
        found += taken.take("m", rate)
    # Of so many exponential prices: five standard deviations, and a full bucket.
    allowed = 5 * 5_000**0.5 + max(rate, intake.LEAST_CAPACITY)
    assert abs(found - 5_000) < allowed


def test_traffic_that_repeats_a_pattern_is_seen_as_a_whole():
    """At a fixed price every sample would fall on the same place of the pattern."""
    clock, taken = sampler()
    places = [0, 0, 0, 0]
    for number in range(400_000):
        clock.now += 0.001
        places[number % 4] += taken.take("m", 250.0)
    total = sum(places)
    assert 90_000 < total < 110_000
    for count in places:
        assert abs(count - total / 4) < 5 * (total * 3 / 16) ** 0.5 + total * 0.01


def test_what_comes_more_slowly_than_the_rate_is_nearly_all_taken():
    clock, taken = sampler()
    found = 0
    for _ in range(2_000):
        clock.now += 1 / 10
        found += taken.take("m", 20.0)
    assert found == 2_000


def test_a_pause_fills_a_bucket_no_further_than_a_second():
    clock, taken = sampler()
    clock.now += 3600
    found = sum(taken.take("m", 100.0) for _ in range(10_000))
    assert 60 < found < 150


def test_another_rate_begins_anew():
    _, taken = sampler()
    while taken.take("m", 10.0):
        pass
    assert taken.take("m", 11.0)


def test_buckets_are_bounded(monkeypatch):
    monkeypatch.setattr(intake, "MAX_BUCKETS", 10)
    _, taken = sampler()
    for number in range(1_000):
        assert taken.take(str(number), 1.0)
        assert len(taken._buckets) <= 10
