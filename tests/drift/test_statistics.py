"""Every distance, discovered: the same contract, a second implementation, its null."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import jensenshannon

import drift.statistics
from drift.comparison import Baseline
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit
from drift.statistics import STATISTICS, Psi, Wasserstein
from drift.window import Counts

SCHEMA = Schema(
    (Tensor("x", "FP32", (2,)), Tensor("c", "INT64")),
    (Feature("a", "x", 0), Feature("b", "x", 1), Feature("c", "c", 0, "categorical")),
)
each = pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)


def draw(rng, rows, shift=0.0):
    x = np.stack([rng.normal(size=rows) + shift, rng.exponential(size=rows)], axis=1)
    return {"x": x.astype(np.float32), "c": rng.integers(0, 6, size=rows)}


def count(profile, data):
    window = profile.accumulator()
    window.update(data)
    return window.take()


@pytest.fixture(scope="module")
def data():
    return draw(np.random.default_rng(0), 4000)


@pytest.fixture(scope="module")
def baseline(data):
    return Baseline(fit(SCHEMA, data))


@each
def test_the_docstring_says_formula_null_reference_and_when_not_to_use_it(statistic):
    text = inspect.getdoc(type(statistic))
    for word in ("Formula:", "Null:", "Reference:", "When not to use it:"):
        assert word in text


@each
def test_the_reference_is_at_no_distance_from_itself(statistic, baseline):
    distance = statistic.distance(baseline.compare(baseline.profile.counts))
    assert np.allclose(distance[:2], 0.0, atol=1e-9)
    assert np.isnan(distance[2]) if statistic.ordered else distance[2] < 1e-9


@each
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 300), shift=st.floats(-9, 9))
def test_distances_are_finite_and_not_negative(statistic, baseline, seed, rows, shift):
    window = count(baseline.profile, draw(np.random.default_rng(seed), rows, shift))
    distance = statistic.distance(baseline.compare(window))[
        : 2 if statistic.ordered else 3
    ]
    assert np.isfinite(distance).all()
    assert (distance >= 0).all()


@each
def test_an_empty_window_has_no_distance(statistic, baseline):
    empty = Counts.empty(len(baseline.profile.names), 2)
    assert np.isnan(statistic.distance(baseline.compare(empty))).all()


@each
def test_nothing_but_missing_values_has_no_distance(statistic, baseline):
    rows = {"x": np.full((50, 2), np.nan, np.float32), "c": np.zeros(50, np.int64)}
    distance = statistic.distance(baseline.compare(count(baseline.profile, rows)))
    assert np.isnan(distance[:2]).all()


@each
def test_a_larger_shift_is_a_larger_distance(statistic, baseline):
    distances = [
        statistic.distance(
            baseline.compare(
                count(baseline.profile, draw(np.random.default_rng(2), 2000, shift))
            )
        )[0]
        for shift in (0.0, 0.3, 0.8, 1.6)
    ]
    assert distances == sorted(distances)
    assert distances[-1] > 3 * distances[0]


@pytest.fixture(scope="module", params=[200, 2000])
def clean(request):
    """180 clean windows, three beside each of 60 references."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(60):
        base = Baseline(fit(SCHEMA, draw(rng, 2000), ordered=False))
        windows = [count(base.profile, draw(rng, request.param)) for _ in range(3)]
        found += [base.compare(window) for window in windows]
    return found


@each
def test_the_null_mean_and_bound_are_those_of_clean_windows(statistic, clean):
    columns = slice(0, 2) if statistic.ordered else slice(0, 3)
    distance = np.array([statistic.distance(each)[columns] for each in clean])
    nulls = [statistic.null(each) for each in clean]
    mean = np.array([null.mean[columns] for null in nulls])
    bound = np.array([null.bound[columns] for null in nulls])
    # 180 windows: the mean's standard error is below 8 % for each law here (their
    # deviation is at most their mean), so 25 % is over three of them.
    ratio = distance.mean(axis=0) / mean.mean(axis=0)
    assert np.all((ratio > 0.75) & (ratio < 1.25)), ratio
    # At most 0.1 % above the bound; of 540, 6 or more has chance 2e-5 (binomial).
    assert (distance > bound).sum() <= 5


def test_psi_is_the_symmetrised_relative_entropy(baseline):
    comparison = baseline.compare(count(baseline.profile, shifted()))
    p, q = (side[0] for side in comparison.shares)
    expected = stats.entropy(p, q) + stats.entropy(q, p)
    assert np.isclose(Psi().distance(comparison)[0], expected)


def test_jensen_shannon_agrees_with_scipy(baseline):
    comparison = baseline.compare(count(baseline.profile, shifted()))
    p, q = (side[0] for side in comparison.shares)
    found = drift.statistics.JensenShannon().distance(comparison)[0]
    assert np.isclose(found, jensenshannon(p, q, base=2))


def test_kolmogorov_smirnov_is_within_a_cell_of_scipys(baseline, data):
    window = shifted()
    comparison = baseline.compare(count(baseline.profile, window))
    found = drift.statistics.KolmogorovSmirnov().distance(comparison)
    for feature in range(2):
        exact = stats.ks_2samp(data["x"][:, feature], window["x"][:, feature]).statistic
        cell = max(baseline.share[feature].max(), 1e-9)
        assert exact - 3 * cell <= found[feature] <= exact + 1e-9


def test_wasserstein_agrees_with_scipys_inside_the_range(baseline, data):
    window = shifted()
    comparison = baseline.compare(count(baseline.profile, window))
    found = Wasserstein().distance(comparison)
    grid = baseline.profile.grid
    for feature in range(2):
        low, high = grid.edges(feature)[[0, -1]]
        sides = [np.clip(rows["x"][:, feature], low, high) for rows in (data, window)]
        exact = stats.wasserstein_distance(*sides) / np.std(sides[0])
        assert np.isclose(found[feature], exact, atol=0.003)


def shifted():
    return draw(np.random.default_rng(9), 1500, 0.2)


def test_dependence_in_the_reference_raises_the_null():
    rng = np.random.default_rng(4)
    independent = draw(rng, 6000)
    dependent = draw(rng, 6000)
    dependent["x"][:, 0] += np.repeat(rng.normal(size=60), 100)
    nulls = []
    for data in (independent, dependent):
        base = Baseline(fit(SCHEMA, data))
        window = count(base.profile, draw(rng, 500))
        null = Wasserstein().null(base.compare(window))
        nulls.append(null.bound[0])
    assert nulls[1] > 3 * nulls[0]


@pytest.mark.parametrize(
    "name",
    [
        module.name
        for module in pkgutil.walk_packages(
            importlib.import_module("drift").__path__, "drift."
        )
    ],
)
def test_examples_in_docstrings_give_what_they_say(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_distances_of_whole_numbers_and_of_many_zeros_agree_with_scipys():
    def rows(seed, scale):
        rng = np.random.default_rng(seed)
        many_zeros = rng.exponential(scale, 4000) * (rng.random(4000) < 0.4)
        return {"x": np.stack([rng.poisson(3 * scale, 4000), many_zeros], axis=1)}

    schema = Schema.from_tensors([Tensor("x", "FP64", (2,))])
    before, after = rows(1, 1.0), rows(2, 1.2)
    base = Baseline(fit(schema, before))
    comparison = base.compare(count(base.profile, after))
    moved = Wasserstein().distance(comparison)
    furthest = drift.statistics.KolmogorovSmirnov().distance(comparison)
    for feature in range(2):
        low, high = base.profile.grid.edges(feature)[[0, -1]]
        old, new = (
            np.clip(side["x"][:, feature], low, high) for side in (before, after)
        )
        exact = stats.wasserstein_distance(old, new) / np.std(old)
        assert np.isclose(moved[feature], exact, atol=0.005)
        assert np.isclose(
            furthest[feature], stats.ks_2samp(old, new).statistic, atol=0.01
        )
    # Clean windows stay below the bound, and their mean is the one foretold.
    clean = [
        base.compare(count(base.profile, rows(seed, 1.0))) for seed in range(3, 33)
    ]
    found = np.array([Wasserstein().distance(each) for each in clean])
    null = Wasserstein().null(clean[0])
    # The third feature is that of correlations, which have no distance.
    found, bound, mean = found[:, :2], null.bound[:2], null.mean[:2]
    assert (found.max(axis=0) < bound).all()
    # 30 windows: a standard error of the mean is at most 18 % of it.
    assert np.allclose(found.mean(axis=0) / mean, 1.0, atol=0.5)


def test_a_constant_column_has_no_distance_without_a_change():
    rng = np.random.default_rng(8)
    data = draw(rng, 2000)
    data["x"][:, 1] = 3.0
    profile = fit(SCHEMA, data)
    null = Wasserstein().null(Baseline(profile).compare(count(profile, data)))
    assert (null.mean[1], null.bound[1]) == (0.0, 0.0)
