"""Intervals of the process: how often they cover, and when there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dependent_latencies import PROCESSES

from exporter.histograms.process_quantiles import ProcessQuantiles
from exporter.histograms.quantiles import minimum_count
from exporter.histograms.windowed_histogram import WindowedHistogram

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
SLOTS = 30


def filled(values, slots=SLOTS):
    """The real ring, filled evenly over its window."""
    window = WindowedHistogram(300.0, SLOTS)
    for slot, part in enumerate(np.array_split(values, slots)):
        window.record_many(part, slot * 10.0)
    return window.slots((slots - 1) * 10.0)


def of(slots):
    found = ProcessQuantiles(QUANTILES, 300.0).of(slots, 0.0)
    return {each.q: each for each in found}


def consecutive(values, windows):
    """Return the quantiles of each window, which remembers those before it."""
    process = ProcessQuantiles(QUANTILES, 300.0)
    return [
        {each.q: each for each in process.of(filled(part), number * 300.0)}
        for number, part in enumerate(np.array_split(values, windows))
    ]


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
@pytest.mark.parametrize(
    "name", ["independent", "batches of 8", "AR(0.9)", "M/M/1 at 50 %"]
)
def test_the_interval_covers_the_quantile_of_the_process(name, q):
    """At least 95 % less three binomial standard errors of the runs that show one."""
    draw, truth, count = PROCESSES[name]
    rng = np.random.default_rng(7)
    shown = [of(filled(draw(rng, count)))[q].interval for _ in range(100)]
    kept = [ends for ends in shown if ends is not None]
    hits = sum(low <= truth(q) <= high for low, high in kept)
    assert len(kept) >= 60
    assert hits / len(kept) >= 0.95 - 3.0 * math.sqrt(0.95 * 0.05 / len(kept))


@pytest.mark.parametrize(
    ("name", "q"),
    [
        ("M/M/1 at 95 %", 0.9),
        ("slow spells, 4 a window", 0.95),
        ("slow spells, 4 a window", 0.99),
    ],
)
def test_the_calmest_windows_do_not_stand_for_the_process(name, q):
    draw, truth, count = PROCESSES[name]
    found = consecutive(draw(np.random.default_rng(3), 80 * count), 80)[12:]
    shown = [each[q].interval for each in found if each[q].interval is not None]
    missed = sum(not low <= truth(q) <= high for low, high in shown)
    assert missed <= 1 + 0.05 * len(shown)


@pytest.mark.parametrize("name", ["power-law spells", "long spells"])
def test_what_lasts_longer_than_slots_shows_between_windows(name):
    """By the slots alone, fewer than nine in ten intervals held."""
    draw, truth, count = PROCESSES[name]
    rng = np.random.default_rng(5)
    shown = [
        each[0.5].interval
        for _ in range(2)
        for each in consecutive(draw(rng, 80 * count), 80)[12:]
        if each[0.5].interval is not None
    ]
    hits = sum(low <= truth(0.5) <= high for low, high in shown)
    assert len(shown) > 40
    assert hits / len(shown) >= 0.9


def test_one_change_of_the_level_leaves_the_interval_as_it_was():
    values = np.random.default_rng(2).lognormal(size=(30, 10_000))
    same = consecutive(values.ravel(), 30)[-1][0.5]
    values[:25] *= 2.0
    changed = consecutive(values.ravel(), 30)[-1][0.5]
    assert changed.effective_samples == pytest.approx(same.effective_samples, rel=0.2)


def test_a_window_that_is_less_calm_than_those_before_counts_by_itself():
    calm = np.random.default_rng(1).lognormal(size=(20, 10_000))
    wild, _, count = PROCESSES["slow spells, 4 a window"]
    last = wild(np.random.default_rng(1), count)
    found = consecutive(np.concatenate((*calm, last)), 21)[-1]
    assert found[0.95] == of(filled(last))[0.95]


def test_where_a_queue_remembers_too_long_no_tail_is_claimed():
    draw, _, count = PROCESSES["M/M/1 at 95 %"]
    rng = np.random.default_rng(7)
    shown = [of(filled(draw(rng, count)))[0.99] for _ in range(50)]
    absent = [found for found in shown if found.interval is None]
    assert len(absent) >= 48
    assert all(found.effective_samples < minimum_count(0.99) for found in absent)


def test_requests_in_three_slots_have_a_quantile_and_no_interval():
    values = np.random.default_rng(1).lognormal(size=1000)
    found = of(filled(values, 3))[0.5]
    assert found.value == pytest.approx(np.median(values), rel=0.012)
    assert (found.interval, found.effective_samples) == (None, 0.0)
    assert of(filled(values, 4))[0.5].interval is not None


def test_a_constant_is_known_to_its_bucket():
    found = of(filled(np.full(5000, 0.0101)))[0.99]
    assert found.interval == (0.0101, 0.0101)


def test_an_empty_window_says_nothing():
    assert ProcessQuantiles(QUANTILES, 300.0).of([], 0.0) == []
