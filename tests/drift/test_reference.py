"""Reference profiles: what they hold, how they travel, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from drift import codec
from drift.errors import ProfileError, StateError
from drift.features import Feature, Schema, Tensor
from drift.fitting import ProfileBuilder, fit
from drift.reference import LEVELS, Profile, Provenance

SCHEMA = Schema(
    (Tensor("x", "FP32", (2,)), Tensor("c", "BYTES")),
    (Feature("a", "x", 0), Feature("b", "x", 1), Feature("c", "c", 0, "categorical")),
)


def draw(rng, rows, values=None):
    x = rng.normal(size=(rows, 2)) if values is None else values
    colours = rng.choice(["red", "green"], size=rows).astype(object)
    return {"x": x.astype(np.float32), "c": colours}


def rows_of(data, start, stop):
    return {name: tensor[start:stop] for name, tensor in data.items()}


@pytest.fixture(scope="module")
def profile():
    provenance = Provenance("a test", "ab" * 32, {"numpy": np.__version__})
    return fit(SCHEMA, draw(np.random.default_rng(0), 3000), provenance=provenance)


def test_a_profile_survives_the_journey_through_bytes(profile):
    again = Profile.from_bytes(profile.to_bytes())
    assert again.to_bytes() == profile.to_bytes()
    assert again.schema == profile.schema
    assert again.provenance == profile.provenance
    assert np.array_equal(again.counts.cells, profile.counts.cells)
    assert np.array_equal(again.projection.bins, profile.projection.bins)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "not a tritonwatch-drift file"),
        (lambda data: b"PAR1" + data, "not a tritonwatch-drift file"),
        (lambda data: b"\xff\xfe\n" + data, "not a tritonwatch-drift file"),
        (lambda data: data[:-5], "damaged"),
        (lambda data: data[:-5] + b"00000", "damaged"),
        (lambda data: data.replace(b" 4 ", b" 99 ", 1), "version '99'"),
        (lambda _: codec.encode("monitor", 1, {}), "'monitor' file"),
        (lambda _: codec.encode("profile", 1, {"rows": 3}), "cannot read the profile"),
    ],
)
def test_foreign_and_damaged_bytes_are_named_as_such(profile, damage, message):
    with pytest.raises(StateError, match=message):
        Profile.from_bytes(damage(profile.to_bytes()))


def test_requests_one_by_one_give_the_profile_of_the_whole():
    data = draw(np.random.default_rng(2), 700)
    builder = ProfileBuilder(SCHEMA)
    for index in range(700):
        builder.add(rows_of(data, index, index + 1))
    assert builder.build().to_bytes() == fit(SCHEMA, data).to_bytes()


def test_rows_after_the_sample_are_counted_on_the_samples_cells():
    data = draw(np.random.default_rng(3), 30_000)
    builder = ProfileBuilder(SCHEMA, sample_rows=4096)
    for start in range(0, 30_000, 1000):
        builder.add(rows_of(data, start, start + 1000))
    profile = builder.build()
    assert profile.rows == 30_000
    assert 128 <= profile.blocks <= 256
    sample = fit(SCHEMA, rows_of(data, 0, 4096)).grid
    assert np.array_equal(profile.grid.low, sample.low)


def test_quantiles_are_those_of_the_data():
    data = draw(np.random.default_rng(4), 5000)
    expected = np.quantile(data["x"].astype(float), LEVELS, axis=0).T
    assert np.allclose(fit(SCHEMA, data).quantiles, expected)


def test_overdispersion_of_dependent_rows_is_measured():
    rng = np.random.default_rng(5)
    # A day effect of variance 0.25 in days of 100 rows: 1 + 100 * 0.2 on whole days.
    days = np.repeat(rng.normal(size=(200, 1)) * 0.5, 100, axis=0)
    values = np.concatenate(
        (days + rng.normal(size=days.shape), rng.normal(size=days.shape)), axis=1
    )
    spread = fit(SCHEMA, draw(rng, len(days), values)).dispersion
    assert 10 < spread.location[0] < 40
    assert spread.location[1] < 1.7
    # What depends on the same values depends as much: their shape, and their tails.
    assert spread.shape[0] >= spread.location[0]
    assert spread.events[0, 2] >= spread.location[0]
    assert spread.events[0].tolist()[:2] == [1.0, 1.0]


def test_dependence_that_moves_neither_location_nor_scale_is_measured_in_the_shape():
    rng = np.random.default_rng(9)
    # Blocks of 100 rows are skewed to one side or the other, with the same mean.
    lean = np.repeat(rng.choice([-1.0, 1.0], size=200), 100)
    values = rng.normal(size=(20_000, 2))
    skewed = np.where(
        lean > 0, rng.exponential(size=20_000), -rng.exponential(size=20_000)
    )
    values[:, 0] = skewed - lean
    spread = fit(SCHEMA, draw(rng, 20_000, values)).dispersion
    assert spread.shape[0] > 4 * max(spread.location[0], spread.shape[1])


def test_bursts_of_missing_values_are_measured():
    rng = np.random.default_rng(10)
    values = rng.normal(size=(10_000, 2))
    values[np.repeat(rng.random(100) < 0.1, 100) & (rng.random(10_000) < 0.5), 0] = (
        np.nan
    )
    values[rng.random(10_000) < 0.05, 1] = np.nan
    events = fit(SCHEMA, draw(rng, 10_000, values)).dispersion.events
    assert events[0, 0] > 15
    assert events[1, 0] < 2.0


def test_a_weekly_pattern_is_learnt_from_four_weeks_and_not_from_three():
    rng = np.random.default_rng(6)

    def of_weeks(weeks):
        builder = ProfileBuilder(SCHEMA)
        for hour in range(168 * weeks):
            values = rng.normal(size=(20, 2))
            values[:, 0] += np.sin(2 * np.pi * hour / 24)
            builder.add(draw(rng, 20, values), hour=hour % 168)
        return builder.build()

    assert of_weeks(3).season is None
    learnt = of_weeks(5)
    means = learnt.season.location[:, 0].reshape(7, 24).mean(axis=0)
    assert np.argmax(means) in {4, 5, 6, 7, 8}
    assert learnt.dispersion.location[0] < 2 < of_weeks(3).dispersion.location[0]
    assert Profile.from_bytes(learnt.to_bytes()).to_bytes() == learnt.to_bytes()


def test_too_little_or_unordered_reference_is_said_to_void_the_promise():
    rng = np.random.default_rng(7)
    assert "100 rows" in fit(SCHEMA, draw(rng, 100)).caveats[0]
    unordered = fit(SCHEMA, draw(rng, 1000), ordered=False)
    assert "order of time" in unordered.caveats[0]
    assert fit(SCHEMA, draw(rng, 1000)).caveats == ()


def test_a_profile_that_does_not_fit_the_model_lists_the_differences(profile):
    other = Schema(
        (Tensor("x", "FP64", (2,)),), (Feature("a", "x", 0), Feature("z", "x", 1))
    )
    with pytest.raises(ProfileError) as caught:
        profile.require(other)
    text = str(caught.value)
    assert all(word in text for word in ("'c' is absent", "'z' is extra", "FP64"))
    profile.require(SCHEMA)


def test_no_rows_make_no_reference():
    with pytest.raises(ProfileError, match="no rows"):
        ProfileBuilder(SCHEMA).build()


def test_an_hour_outside_the_week_is_refused():
    with pytest.raises(ProfileError, match="168"):
        ProfileBuilder(SCHEMA).add({}, hour=168)


def test_cells_are_labelled_in_the_features_own_unit(profile):
    assert profile.cell_label(0, 0, 0).startswith("[-inf, ")
    assert profile.cell_label(2, 0, 0) == "green"
