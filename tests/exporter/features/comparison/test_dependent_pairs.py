"""Comparisons of two instances of one model, each with slow spells of its own.

The benchmark `honesty` has the error rates of more runs; here each is held to four
standard deviations.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from dependent_latencies import (
    COMPARED,
    SIGMA,
    autoregressive,
    outages,
    window_levels,
)

from exporter.features.comparison.answer_pairs import Answered, Pairs
from exporter.features.comparison.confidence import LEAST_REQUESTS, Finding
from exporter.features.comparison.production_comparison import Outcomes, Windows
from exporter.histograms.histogram import Histogram
from exporter.triton.protocol_types import InferReply

SEED = 4
RUNS = 40
ALPHA = 0.05
LATENCIES = ("latency_mean", "latency_p50")
MOST_CALLED = RUNS * ALPHA + 4 * math.sqrt(RUNS * ALPHA * (1 - ALPHA))


def answer(seconds):
    return Answered(InferReply((), float(seconds)))


def pairs_of(x, y, metrics=LATENCIES):
    """The pairs, and after how many of them each metric excluded no difference."""
    pairs = Pairs(metrics, ALPHA * len(metrics), "auto", 1e-3)
    called = {}
    looks = set(np.geomspace(50, len(x), 15).astype(int).tolist())
    for number, (ours, theirs) in enumerate(zip(x, y, strict=True), 1):
        pairs.add(answer(ours), answer(theirs), None)
        if number in looks:
            for metric, found in pairs.intervals().items():
                if not found.low <= 0 <= found.high:
                    called.setdefault(metric, number)
    return pairs, called


@pytest.mark.parametrize("process", ["AR(0.6)", "AR(0.9)", "slow spells"])
def test_slow_spells_of_one_instance_alone_are_hardly_ever_called(process):
    rng = np.random.default_rng(SEED)
    called = [pairs_of(*COMPARED[process](rng, 3000))[1] for _ in range(RUNS)]
    for metric in LATENCIES:
        assert sum(metric in c for c in called) <= MOST_CALLED, metric


def test_batches_of_equal_latencies_are_hardly_ever_called():
    """Where one batch is all that is beyond the quantile, no pair seems to differ."""
    rng = np.random.default_rng(SEED)
    called = [
        pairs_of(*np.repeat(rng.lognormal(size=(2, 40)), 64, axis=1), ("latency_p95",))
        for _ in range(RUNS)
    ]
    assert sum(bool(metrics) for _, metrics in called) <= MOST_CALLED


def test_equal_means_of_unlike_shapes_are_hardly_ever_called():
    rng = np.random.default_rng(SEED)
    draw = COMPARED["unlike shapes"]
    runs = [pairs_of(*draw(rng, 4000), LATENCIES[:1])[1] for _ in range(RUNS)]
    assert sum(bool(called) for called in runs) <= MOST_CALLED


def test_a_mean_is_withheld_until_rare_stalls_would_have_shown():
    rng = np.random.default_rng(SEED)
    x, y = rng.lognormal(0, 0.2, (2, LEAST_REQUESTS))
    y *= 1.5
    few, called = pairs_of(x[:-1], y[:-1])
    found = few.intervals()["latency_mean"]
    assert (found.low, found.high, found.worth) == (-1.0, math.inf, 0)
    assert found.withheld.startswith("1999 of 2,000 requests to each")
    assert Finding("latency_mean", found, 0.05).verdict == "undecided"
    # The median says so long before.
    assert called["latency_p50"] < 300
    found = pairs_of(x, y)[0].intervals()["latency_mean"]
    assert 0.4 < found.low < 0.5 < found.high < 0.6
    assert found.withheld == ""
    assert 0.8 * LEAST_REQUESTS < found.worth <= LEAST_REQUESTS


def test_correlated_pairs_are_worth_fewer_and_the_reason_is_given_where_unknown():
    rng = np.random.default_rng(SEED)
    pairs, _ = pairs_of(*COMPARED["AR(0.9)"](rng, 4000), ("latency_p50",))
    found = pairs.intervals()["latency_p50"]
    assert 0 < found.worth < 4000 / 5
    slow = np.repeat([1.0, 2.0], 500)
    pairs, _ = pairs_of(slow, np.ones(1000), ("latency_p50",))
    found = pairs.intervals()["latency_p50"]
    assert found.withheld == "correlated over more than a 16th of the 1000 pairs so far"


def test_an_outage_counts_once_however_many_pairs_it_costs():
    rng = np.random.default_rng(SEED)
    called = 0
    for _ in range(RUNS):
        x, y = outages(rng, 6000), outages(rng, 6000)
        pairs = Pairs(("success",), ALPHA, "auto", 1e-3)
        excluded = False
        for number in range(6000):
            sides = (
                Answered(None) if failed[number] else answer(1.0) for failed in (x, y)
            )
            pairs.add(*sides, None)
            if number % 300 == 299:
                found = pairs.intervals()["success"]
                excluded = excluded or not found.low <= 0 <= found.high
        called += excluded
    assert called <= MOST_CALLED


def test_a_challenger_that_fails_now_and_then_is_still_worse():
    rng = np.random.default_rng(SEED)
    pairs = Pairs(("success",), ALPHA, "auto", 1e-3)
    for failed in rng.random(1000) < 0.1:
        pairs.add(answer(1.0), Answered(None) if failed else answer(1.0), None)
    found = pairs.intervals()["success"]
    assert found.high < -0.05
    assert found.worth > 500


def test_output_distances_that_are_correlated_widen_the_interval():
    rng = np.random.default_rng(SEED)
    widths = []
    for spell in (1, 20):
        pairs = Pairs(("output_distance",), ALPHA, "auto", 1e-3)
        for far in np.repeat(rng.random(2000 // spell) < 0.2, spell):
            pairs._distances.add(float(far))
            pairs._distance.add(float(far))
        found = pairs.intervals()["output_distance"]
        assert found.low <= found.estimate <= found.high
        widths.append(found.high - found.low)
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize("correlation", [0.6, 0.9])
def test_levels_of_windows_that_wander_are_hardly_ever_called(correlation):
    rng = np.random.default_rng(SEED)
    called = 0
    for _ in range(RUNS):
        windows = Windows()
        for x, y in zip(
            *(window_levels(rng, 200, correlation) for _ in range(2)), strict=True
        ):
            sides = Histogram(), Histogram()
            for side, values in zip(sides, (x, y), strict=True):
                side.record_many(values)
            windows.add(*sides)
        found = windows.mean_ratio(ALPHA), windows.quantile_ratio(0.5, ALPHA)
        called += any(f is not None and not f.low <= 0 <= f.high for f in found)
    assert called <= 2 * MOST_CALLED


def of_production(x, y, per=20):
    """Of failures by request, the stretches after which mode ab calls a difference."""
    outcomes = Outcomes()
    parts = x.reshape(-1, per).sum(axis=1), y.reshape(-1, per).sum(axis=1)
    for number, failed in enumerate(zip(*parts, strict=True), 1):
        outcomes.add(np.array([[per - f, f] for f in failed], float))
        if number % 5 == 0:
            found = outcomes.difference(ALPHA)
            if not found.low <= 0 <= found.high:
                return number
    return math.inf


def failing_spells(rng, count):
    """Failures whose probability wanders over some 200 requests, 5 % on average."""
    level = np.log(autoregressive(rng, count, 0.995)) / SIGMA
    return rng.random(count) < 1 / (1 + np.exp(3.5 - 1.5 * level))


@pytest.mark.parametrize("per", [20, 100])
@pytest.mark.parametrize(
    "draw",
    [
        outages,
        failing_spells,
        lambda rng, count: outages(rng, count, 100, 0.05),
        lambda rng, count: outages(rng, count, 300),
        lambda rng, count: outages(rng, count, share=0.003),
        lambda rng, count: rng.random(count) < 0.01,
    ],
    ids=["outages", "spells", "long", "longer", "rare", "independent"],
)
def test_production_of_one_model_twice_is_hardly_ever_called(draw, per):
    rng = np.random.default_rng(SEED)
    requests = 300 * per
    called = [
        of_production(draw(rng, requests), draw(rng, requests), per)
        for _ in range(RUNS)
    ]
    assert np.isfinite(called).sum() <= MOST_CALLED


@pytest.mark.parametrize("begins", [70, 200, 1025])
def test_a_challenger_that_begins_to_fail_is_called_before_twice_that_time_again(
    begins,
):
    rng = np.random.default_rng(SEED)
    x, y = rng.random((2, 20 * 3 * begins)) < 0.01
    y[20 * begins :] |= rng.random(20 * 2 * begins) < 0.2
    assert begins < of_production(x, y) <= 3 * begins


def test_failures_of_production_in_one_stretch_of_time_say_little():
    def difference(failures):
        outcomes = Outcomes()
        for failed in failures:
            outcomes.add(np.array([[100.0, 0.0], [100.0 - failed, failed]]))
        return outcomes.difference(ALPHA)

    spread, once = difference([5] * 60), difference([0] * 59 + [100] * 2)
    assert -0.1 < spread.low < spread.estimate < spread.high < 0
    assert spread.estimate == pytest.approx(-0.05)
    assert once.high > 0
    assert difference([5] * 49).withheld == "49 of at least 50 stretches of time"
    never = difference([0] * 60)
    assert never.low < -0.0005 < 0.0005 < never.high
    assert Outcomes().difference(ALPHA) is None
