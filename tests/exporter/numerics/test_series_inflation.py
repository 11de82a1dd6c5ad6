"""How much less dependent real numbers tell than independent ones."""

from __future__ import annotations

import numpy as np
from power_traces import autoregressive

from exporter.numerics.dependence import MOST_BLOCKS, series_inflation


def inflated(series):
    values = np.array(series).T
    return series_inflation(values, np.ones_like(values))


def test_independent_values_are_worth_as_many_as_they_are():
    rng = np.random.default_rng(1)
    found = inflated(rng.normal(size=(200, 1000)))
    assert 1.0 <= np.mean(found.phi) < 1.4
    assert set(found.freedom) == {MOST_BLOCKS - 1}


def test_inflation_of_an_autoregressive_series_is_that_of_the_theory():
    rng = np.random.default_rng(2)
    found = inflated([autoregressive(rng, 2000, 0.8) for _ in range(200)])
    # That is 9 for a correlation of 0.8.
    assert 8.0 < np.mean(found.phi) < 10.0


def test_blocks_that_tell_nothing_are_no_degrees_of_freedom():
    values = np.random.default_rng(3).normal(size=(1000, 2))
    weights = np.ones_like(values)
    weights[250:, 1] = 0.0
    assert list(series_inflation(values, weights).freedom) == [MOST_BLOCKS - 1, 2]


def test_too_few_values_tell_nothing():
    assert inflated(np.zeros((1, 7))) is None
