"""Categories of many values that become tied to another column, in any order of the values."""

from __future__ import annotations

import numpy as np
import pytest
from drifting_data import window_of

from drift.features import JOINT, Feature, Schema, Tensor
from drift.fitting import fit
from drift.joint import BATCH, LEAST_DEVIATION, LEVEL_COLUMN, JointModel, fisher
from drift.judgement import judge

SCHEMA = Schema(
    (Tensor("x", "FP32", (3,)), Tensor("c", "BYTES", (2,))),
    (
        *(Feature(f"x{i}", "x", i) for i in range(3)),
        *(Feature(f"c{i}", "c", i, "categorical") for i in range(2)),
    ),
)
LEVELS = np.array([2])


def texts(level):
    return np.array([b"level %03d" % number for number in level], object)


def table(rng, rows, first, second):
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    return {"x": x, "c": np.stack((texts(first), texts(second)), axis=1)}


def tied_to_a_number(rng, rows, levels, order):
    found = table(rng, rows, rng.integers(0, levels, rows), rng.integers(0, 4, rows))
    rank = np.argsort(np.argsort(found["x"][:, 0]))
    found["c"][:, 0] = texts(order[rank * levels // rows])
    return found


@pytest.mark.parametrize("levels", [3, 7, 12, 40, 100])
@pytest.mark.parametrize("seed", range(3))
def test_values_tied_to_a_number_in_any_order_are_drift_in_one_window(levels, seed):
    rng = np.random.default_rng([levels, seed])
    first, second = rng.integers(0, levels, 10_000), rng.integers(0, 4, 10_000)
    profile = fit(SCHEMA, table(rng, 10_000, first, second))
    rows = tied_to_a_number(rng, 3000, levels, rng.permutation(levels))
    found = judge(profile, window_of(profile, rows))
    assert [feature.name for feature in found.changed] == [JOINT]
    # Named once, although it has several columns of levels.
    (pair,) = found.changed[0].pairs
    assert pair.columns == ("x0", "c0")
    assert abs(pair.reference) < 0.1
    assert abs(pair.data) > 0.7


def test_two_categories_of_many_values_that_become_one_are_drift():
    rng = np.random.default_rng(1)
    order = rng.permutation(40)
    profile = fit(SCHEMA, table(rng, 10_000, *rng.integers(0, 40, (2, 10_000))))
    first = rng.integers(0, 40, 3000)
    found = judge(profile, window_of(profile, table(rng, 3000, first, order[first])))
    assert [feature.name for feature in found.changed] == [JOINT]
    assert found.changed[0].pairs[0].columns == ("c0", "c1")


def test_many_values_that_were_tied_and_no_longer_are_is_drift():
    rng = np.random.default_rng(2)
    order = rng.permutation(40)
    profile = fit(SCHEMA, tied_to_a_number(rng, 10_000, 40, order))
    same = window_of(profile, tied_to_a_number(rng, 3000, 40, order))
    assert judge(profile, same).outcome == "no_drift"
    first, second = rng.integers(0, 40, 3000), rng.integers(0, 4, 3000)
    found = judge(profile, window_of(profile, table(rng, 3000, first, second)))
    assert [feature.name for feature in found.changed] == [JOINT]


@pytest.mark.parametrize("levels", [3, 40, 100])
@pytest.mark.parametrize(("before", "after"), [(0.6, 0.0), (0.9, 0.0), (0.0, 0.9)])
def test_other_shares_of_many_values_are_no_change_of_correlations(
    levels, before, after
):
    rng = np.random.default_rng([levels, round(10 * before)])

    def of(rows, share):
        first = np.where(rng.random(rows) < share, 0, rng.integers(1, levels, rows))
        return table(rng, rows, first, rng.integers(0, 4, rows))

    profile = fit(SCHEMA, of(10_000, before))
    found = judge(profile, window_of(profile, of(3000, after)))
    assert [feature.name for feature in found.changed] == ["c0"]


@pytest.mark.parametrize("levels", [2, 8, 40, 120])
def test_chance_gives_levels_no_correlation_and_at_most_the_deviation_of_one(levels):
    rng = np.random.default_rng(levels)
    found = []
    for _ in range(600):
        batch = rng.normal(size=(BATCH, 3)).astype(np.float32)
        batch[:, 2] = rng.integers(0, levels, BATCH)
        z, constant = fisher(batch, LEVELS)
        assert not constant[2]
        assert np.array_equal(z, z.T)
        assert z[2, 2] == 0
        found.append(z[2, 0])
    assert abs(np.mean(found)) < 0.15 * LEAST_DEVIATION
    assert np.std(found) < 1.15 * LEAST_DEVIATION


@pytest.mark.parametrize("values", [np.zeros(BATCH), np.arange(BATCH)])
def test_a_batch_of_one_level_or_of_single_ones_shows_nothing(values):
    rng = np.random.default_rng(4)
    batch = rng.normal(size=(BATCH, 3)).astype(np.float32)
    batch[:, 2] = values
    z, constant = fisher(batch, LEVELS)
    assert constant.tolist() == [False, False, True]
    assert not z[2].any()


def test_a_reference_without_levels_is_compared_as_it_was_made():
    rng = np.random.default_rng(5)
    rows = table(rng, 10_000, *rng.integers(0, 40, (2, 10_000)))
    profile = fit(SCHEMA, rows)
    assert [code.chosen.tolist() for code in profile.joint.codes] == [[1, 2, 3, 4]] * 2
    told = profile.joint.state()
    told["codes"] = [[[0, 1, 2, 3], [0.5] * LEVEL_COLUMN]] * 2
    model = JointModel.from_state(told, 3, profile.categories[:2])
    assert model.levels.size == 0
    batch = model.columns(rows["x"][:BATCH], [np.arange(BATCH) % 40 for _ in range(2)])
    assert np.abs(batch[:, 3:]).max() == 0.5
