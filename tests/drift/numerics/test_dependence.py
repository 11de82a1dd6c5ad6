"""How much less correlated observations tell: variance inflation from their order."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from dependent_latencies import autoregressive, batches_of_8
from scipy import stats

from drift.numerics.dependence import (
    LEAST_BATCHES,
    LEAST_FREEDOM,
    Inflation,
    fit_inflations,
    sequence_inflation,
    student_deviation,
    variance_ratio,
)

SEED = 20_261


def inflations(draw, count, runs=40):
    rng = np.random.default_rng(SEED)
    found = [sequence_inflation(draw(rng, count)) for _ in range(runs)]
    return [f.phi for f in found if f is not None], found


@pytest.mark.parametrize("freedom", [4, 9.0, 30, 1000])
@pytest.mark.parametrize("z", [1.96, 3.0])
def test_students_deviation_is_exact_to_three_per_cent_and_never_too_small(z, freedom):
    exact = stats.t.isf(1.0 - NormalDist().cdf(z), freedom)
    assert exact * 0.9999 <= student_deviation(z, freedom) <= 1.03 * exact


def test_a_deviation_far_out_with_few_degrees_is_infinite():
    assert student_deviation(30.0, 4.0) == math.inf
    assert Inflation(4.0, 1e9).deviations(3.0) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("draw", "phi"),
    [
        (lambda rng, n: rng.normal(size=n), 1.0),
        (batches_of_8, 8.0),
        # Of the logarithm, which is the AR(1) itself: (1 + r) / (1 - r).
        (lambda rng, n: np.log(autoregressive(rng, n, 0.6)), 4.0),
        (lambda rng, n: np.log(autoregressive(rng, n, 0.9)), 19.0),
    ],
    ids=["independent", "batches of 8", "AR(0.6)", "AR(0.9)"],
)
def test_the_inflation_of_processes_whose_own_is_known(draw, phi):
    known, _ = inflations(draw, 4096)
    assert len(known) >= 38
    assert np.median(known) == pytest.approx(phi, rel=0.12)


def test_dependence_longer_than_a_batch_is_not_estimated():
    rng = np.random.default_rng(SEED)
    assert sequence_inflation(np.cumsum(rng.normal(size=1000))) is None
    assert sequence_inflation(np.repeat([0.0, 1.0], 500)) is None
    # A slow level under noise that hides it between neighbours.
    level = 0.3 * np.sin(np.linspace(0.0, 2.0 * np.pi, 4096))
    noisy = level + rng.normal(size=4096)
    assert abs(np.corrcoef(noisy[1:], noisy[:-1])[0, 1]) < 0.1
    assert sequence_inflation(noisy) is None


def test_too_few_values_are_not_estimated_and_constant_ones_are_independent():
    assert sequence_inflation(np.ones(LEAST_BATCHES - 1)) is None
    assert sequence_inflation(np.zeros(0)) is None
    assert sequence_inflation(np.full(1000, 0.1)).phi == 1.0
    # The last batch is not full: what is left out must not look like a trend.
    one_off = np.append(np.full(101, -1.0), 1.0)
    assert sequence_inflation(one_off).phi == pytest.approx(1.0)


def test_the_freedom_counts_what_makes_up_the_variance():
    rng = np.random.default_rng(SEED)
    assert sequence_inflation(rng.normal(size=3000)).freedom == pytest.approx(
        1000, rel=0.1
    )
    stalls = rng.normal(size=3000)
    stalls[[500, 2000]] = 1e4
    assert sequence_inflation(stalls).freedom < LEAST_FREEDOM
    signs = rng.choice([-1.0, 0.0, 1.0], p=[0.01, 0.98, 0.01], size=3000)
    assert sequence_inflation(signs, bounded=True).freedom >= 1000


def test_a_block_without_observations_says_nothing_about_the_variance():
    rng = np.random.default_rng(SEED)
    counts = np.repeat([[100.0, 100.0]], 400, axis=0)
    counts[:300, 1] = 0.0
    events = rng.binomial(counts.astype(int), 0.3).astype(float)
    ratios = variance_ratio(events, counts)
    assert ratios == pytest.approx([1.0, 1.0], abs=0.3)
    assert ratios[1] == pytest.approx(
        variance_ratio(events[300:, 1], counts[300:, 1]), rel=1e-9
    )
    assert variance_ratio(np.zeros(5), np.full(5, 10.0)) == 1.0


def test_the_inflation_of_a_slope_is_that_of_the_noise_and_not_of_its_residuals():
    rng = np.random.default_rng(SEED)
    times = np.arange(60.0)
    basis = np.stack((np.ones(60), times - times.mean()), axis=1)
    slopes, found = [], []
    for _ in range(200):
        noise = np.log(autoregressive(rng, 60, 0.6))
        fitted, *_ = np.linalg.lstsq(basis, noise)
        residuals = noise - basis @ fitted
        slopes.append(fitted[1])
        of_slope = fit_inflations(times, residuals, basis)[1]
        one = residuals @ residuals / 58 / (basis[:, 1] @ basis[:, 1])
        found.append(of_slope.phi * one)
    assert np.mean(found) == pytest.approx(np.var(slopes), rel=0.3)
