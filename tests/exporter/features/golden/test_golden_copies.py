"""Golden samples that are (nearly) the same count as one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from exporter.features.golden import golden_data
from exporter.features.golden.golden_data import groups_of


def partition(groups):
    """The rows of each group."""
    return sorted(tuple(np.flatnonzero(groups == g)) for g in np.unique(groups))


def copies_of(rows, copies):
    return sorted(tuple(range(n * copies, (n + 1) * copies)) for n in range(rows))


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.02])
def test_near_copies_are_one_and_all_else_is_apart(noise) -> None:
    rng = np.random.default_rng(1)
    rows = np.repeat(rng.normal(size=(300, 6)) * 10.0 ** np.arange(6), 4, axis=0)
    rows += noise * rng.normal(size=rows.shape) * 10.0 ** np.arange(6)
    order = rng.permutation(len(rows))
    found = np.empty(len(rows), int)
    found[order] = groups_of({"x": rows[order].astype(np.float32)})
    assert partition(found) == copies_of(300, 4)


def test_different_records_are_different() -> None:
    digits = load_digits().data.astype(np.float32)
    assert len(np.unique(groups_of({"x": digits}))) == len(digits)


def test_texts_and_several_inputs_are_compared_whole() -> None:
    texts = np.array([[b"a"], [b"a"], [b"b"], [b"a"]], object)
    numbers = np.array([1, 1, 1, 2])
    assert partition(groups_of({"t": texts, "x": numbers})) == [(0, 1), (2,), (3,)]


def test_a_dense_line_is_not_one_copy() -> None:
    rows = np.random.default_rng(2).normal(size=(2000, 1))
    assert len(np.unique(groups_of({"x": rows}))) > 100


def test_of_very_many_only_equal_ones_are_found(monkeypatch) -> None:
    monkeypatch.setattr(golden_data, "MOST_COMPARED", 3)
    rows = np.array([[0.0], [0.0], [1e-9], [1.0]])
    assert partition(groups_of({"x": rows})) == [(0, 1), (2,), (3,)]


def test_columns_that_do_not_vary_say_nothing() -> None:
    assert partition(groups_of({"x": np.ones((3, 2))})) == [(0, 1, 2)]
