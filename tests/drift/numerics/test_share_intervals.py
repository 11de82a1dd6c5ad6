"""Intervals of shares: Wilson's, over rows without their copies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from drift.numerics.dependence import copies_inflation
from drift.numerics.normal import share_interval


@pytest.mark.parametrize(("right", "asked"), [(0, 2), (9, 10), (436, 449), (9, 9)])
def test_it_is_wilsons_of_scipy(right, asked) -> None:
    expected = binomtest(right, asked).proportion_ci(method="wilson")
    found = share_interval(right / asked, asked)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= found[0] <= found[1] <= 1


@pytest.mark.parametrize(("copies", "phi"), [(1, 1.0), (7, 7.0)])
def test_copies_are_worth_one_row(copies, phi) -> None:
    found = copies_inflation(np.repeat(np.arange(300), copies))
    assert found.phi == phi
    assert found.effective_samples(300 * copies) == pytest.approx(300, rel=0.02)


def test_one_group_of_many_dominates() -> None:
    groups = np.concatenate([np.zeros(100, np.int64), np.arange(1, 101)])
    # 200 rows, (100^2 + 100) / 200 of inflation.
    assert copies_inflation(groups).phi == pytest.approx(50.5)
    assert copies_inflation(groups[:0]).phi == 1.0


@pytest.mark.parametrize("copies", [1, 5])
def test_it_holds_the_accuracy_as_often_as_it_says(copies) -> None:
    rng = np.random.default_rng(1)
    rows, accuracy = 200, 0.9
    worth = copies_inflation(np.repeat(np.arange(rows), copies))
    samples = worth.effective_samples(rows * copies)
    found = [
        share_interval(share, samples)
        for share in rng.binomial(rows, accuracy, 2000) / rows
    ]
    inside = np.mean([low <= accuracy <= high for low, high in found])
    # Wilson's is not exact: 93 to 97 % at this size.
    assert 0.93 <= inside <= 0.97
