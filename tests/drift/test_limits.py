"""What a reference cannot promise or show is said in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drift_command import told
from drifting_data import window_of

from drift import codec
from drift.comparison import Baseline
from drift.errors import StateError
from drift.features import Feature, Schema, Tensor
from drift.fitting import ProfileBuilder, fit
from drift.judgement import judge
from drift.reference import KIND, NO_JOINT, VERSION, Profile
from drift.statistics import KolmogorovSmirnov

OLD = Path(__file__).parents[1] / "data" / "drift" / "reference-0.1.0.profile"
NUMBERS = Schema.from_tensors([Tensor("x", "FP32", (2,))])


def numbers(rng, rows):
    return np.stack([rng.random(rows) < 0.5, rng.normal(size=rows)], 1)


def test_a_reference_of_0_1_0_is_read_and_says_what_it_does_not_see():
    rng = np.random.default_rng(1)
    profile = Profile.from_bytes(OLD.read_bytes())
    zips = np.array([f"z{i}" for i in rng.integers(0, 200, 3000)], object)
    same = {"x": numbers(rng, 3000).astype(np.float32), "c": zips}
    assert profile.to_bytes() == Profile.from_bytes(profile.to_bytes()).to_bytes()
    assert profile.projection.used.max() == 16
    found = judge(profile, window_of(profile, same))
    assert found.outcome == "no_drift"
    assert found.blind_spots[1:] == (NO_JOINT,)
    assert "flag (5" in found.blind_spots[0]
    assert "normal" not in found.blind_spots[0]
    same["x"][:, 1] += 0.5
    assert judge(profile, window_of(profile, same)).outcome == "drift"


def test_a_reference_made_now_sees_between_its_values_and_has_no_blind_spot():
    rng = np.random.default_rng(2)
    profile = fit(NUMBERS, {"x": numbers(rng, 3000)})
    again = Profile.from_bytes(profile.to_bytes())
    assert again.blind_spots == ()
    assert again.to_bytes() == profile.to_bytes()
    window = numbers(rng, 3000)
    window[:, 0] = np.where(window[:, 0] > 0, 0.6, 0.4)
    found = judge(again, window_of(again, {"x": window}))
    assert found.changed[0].name == "x[0]"
    bins = found.changed[0].bins
    assert bins[0].name == "values that the reference does not have"
    assert {change.name for change in bins[1:]} == {"0", "1"}


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda told: told["grid"]["cuts"][0][1].reverse(), "increasing"),
        (lambda told: told["grid"]["cuts"][0][1].append(np.inf), "increasing"),
        (lambda told: told["grid"]["cuts"][0].__setitem__(0, 7), "feature 7 of 2"),
        (lambda told: told["dispersion"]["shown"].append([9, 0.5]), "feature 9"),
        (lambda told: told["dispersion"]["shown"].append([0, 1.5]), "invalid shares"),
        (lambda told: told.update(bins=99), "99 coarse bins"),
    ],
)
def test_cells_and_shares_that_cannot_be_are_refused(spoil, problem):
    profile = fit(NUMBERS, {"x": numbers(np.random.default_rng(3), 600)})
    payload = codec.decode(profile.to_bytes(), KIND, VERSION)
    spoil(payload)
    with pytest.raises(StateError, match=problem):
        Profile.from_bytes(codec.encode(KIND, VERSION, payload))


@pytest.mark.parametrize(
    ("hours", "absent"),
    [
        (range(120), "Saturday, Sunday;"),
        (range(24), "Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday;"),
        (range(168), None),
        (range(9, 168, 24), None),
    ],
)
def test_days_of_the_week_that_a_reference_does_not_have_are_named(hours, absent):
    rng = np.random.default_rng(4)
    builder = ProfileBuilder(NUMBERS)
    for _ in range(2):
        for hour in hours:
            builder.add({"x": numbers(rng, 60)}, hour=hour)
    profile = Profile.from_bytes(builder.build().to_bytes())
    assert [absent in c for c in profile.caveats] == ([True] if absent else [])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.full(400, 0.0), "all values are 0"),
        (np.full(400, 1.0), "all values are 1"),
    ],
)
def test_a_single_value_is_named(values, said):
    rng = np.random.default_rng(5)
    profile = fit(NUMBERS, {"x": numbers(rng, 3000)})
    window = numbers(rng, 400)
    window[:, 0] = values
    counts = window_of(profile, {"x": window})
    assert said in told(judge(profile, counts), profile, counts)


def test_several_values_near_each_other_are_not_said_to_be_one():
    rng = np.random.default_rng(6)
    profile = fit(NUMBERS, {"x": numbers(rng, 3000)})
    low, high = profile.grid.edges(1)[[128, 129]]
    window = numbers(rng, 400)
    window[:, 1] = rng.uniform(low + 1e-4, high - 1e-4, 400)
    counts = window_of(profile, {"x": window})
    said = told(judge(profile, counts), profile, counts)
    assert f"all values lie in [{low:.6g}, {high:.6g})" in said


def test_null_bounds_are_those_that_a_distance_can_reach():
    rng = np.random.default_rng(7)
    profile = fit(
        NUMBERS, {"x": np.stack([np.full(900, 5.0), rng.normal(size=900)], 1)}
    )
    clean = np.stack([np.full(3, 5.0), rng.normal(size=3)], 1)
    comparison = Baseline(profile).compare(window_of(profile, {"x": clean}))
    assert (KolmogorovSmirnov().null(comparison).bound <= 1.0).all()
    constant = next(
        f for f in judge(profile, comparison.window).features if f.name == "x[0]"
    )
    assert all(d.null_bound > 0 and not d.beyond for d in constant.distances)
    # No deviation, so nothing in units of one.
    assert "wasserstein" not in {d.kind for d in constant.distances}


def test_a_category_whose_values_all_share_a_bin_has_no_distance():
    rng = np.random.default_rng(8)
    schema = Schema((Tensor("c", "INT64"),), (Feature("c", "c", 0, "categorical"),))
    profile = fit(schema, {"c": rng.integers(0, 1000, 20_000)})
    assert profile.projection.used.tolist() == [1]
    rows = {"c": rng.integers(0, 1000, 3000) // 100}
    (found, *_) = judge(profile, window_of(profile, rows)).features
    assert found.distances == ()


def test_texts_that_are_all_different_are_said_to_be_unwatched():
    texts = np.array([f"order-{i}" for i in range(3000)], object)
    schema = Schema((Tensor("id", "BYTES"),), (Feature("id", "id", 0, "categorical"),))
    (said,) = fit(schema, {"id": texts}).blind_spots
    assert said.startswith("id: too many values")
