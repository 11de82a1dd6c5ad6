"""New values of a category are found as long as the old ones can be told from them."""

from __future__ import annotations

import numpy as np
import pytest
from drift_command import told
from drifting_data import SETTINGS, window_of

from drift.alarms.monitor import Monitor
from drift.categories import new_values
from drift.features import Schema, Tensor
from drift.fitting import fit
from drift.grid import CELLS, OTHER
from drift.judgement import judge
from drift.projection import project
from drift.reference import Profile
from drift.window import Counts

SCHEMA = Schema.from_tensors([Tensor("c", "BYTES")])


def texts(numbers):
    return {"c": np.array([f"v{number}" for number in numbers], object)}


def uniform(rng, levels, rows):
    return rng.integers(0, levels, rows)


def with_new(rng, levels, rows, share):
    values = uniform(rng, levels, rows)
    return np.where(rng.random(rows) < share, values + levels, values)


def test_the_bound_of_new_values_is_two_standard_errors_above_goods_estimate():
    # Good (1953): the variance of the number of values seen once is n1 + 2 n2.
    assert new_values(16, 10) == 16 + 2 * 6


@pytest.mark.parametrize("levels", [100, 1000, 3000])
def test_two_percent_of_new_values_are_found_and_told(levels):
    rng = np.random.default_rng(levels)
    profile = fit(SCHEMA, texts(uniform(rng, levels, 40_000)))
    profile = Profile.from_bytes(profile.to_bytes())
    found = judge(profile, window_of(profile, texts(with_new(rng, levels, 5000, 0.02))))
    assert found.outcome == "drift"
    unseen = found.features[0].quality[-1]
    assert (unseen.name, unseen.reference) == ("unseen", 0.0)
    # Binomial of 5,000: a standard error of 0.002.
    assert unseen.data == pytest.approx(0.02, abs=0.008)


def test_where_nearly_every_value_is_new_the_share_of_new_ones_is_unknown():
    rng = np.random.default_rng(1)
    profile = fit(SCHEMA, texts(rng.permutation(4000)))
    counts = window_of(profile, texts(np.arange(4000, 6000)))
    found = judge(profile, counts)
    assert found.outcome != "drift"
    share = found.features[0].quality[-1]
    assert (share.name, share.reference, share.data) == ("unseen", None, None)
    said = told(found, profile, counts)
    assert "0.0 %" not in said
    assert "c:" in found.blind_spots[0]
    assert found.blind_spots[0] in said


@pytest.mark.parametrize("levels", [300, 3000, 12_000])
def test_clean_rows_of_many_values_raise_no_more_alarms_than_wanted(levels):
    alarms = 0
    for seed in range(3):
        rng = np.random.default_rng([levels, seed])
        profile = fit(SCHEMA, texts(uniform(rng, levels, 8000)))
        monitor = Monitor(profile, SETTINGS)
        for _ in range(40):
            rows = texts(uniform(rng, levels, 500))
            alarms += monitor.update(window_of(profile, rows)).raised
    # 120 windows at 1 in 1,000: 3 or more has chance 3e-4 (binomial).
    assert alarms <= 2


def test_fifteen_equally_common_values_have_a_bin_each_beside_others():
    cells = np.zeros((1, CELLS), np.int64)
    cells[0, :15], cells[0, OTHER] = 100, 5
    bins = project(Counts(cells, 1505, 0)).bins[0]
    assert bins[:15].tolist() == list(range(1, 16))
    assert bins[OTHER] == 0
