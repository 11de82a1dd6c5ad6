"""The season of a reference is that of its own scores, whatever its first rows were."""

from __future__ import annotations

import numpy as np
import pytest

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.features import Schema, Tensor
from drift.fitting import ProfileBuilder
from drift.judgement import judge

WEEK = 24 * 7
HOURLY = 300
NAMES = ("shift", "scale", "amount", "stepped")
SCHEMA = Schema.from_tensors([Tensor(name) for name in NAMES])


def rows(rng, hour, number):
    """Data with the season of a day: of the mean, the spread, a skewed mean, a count."""
    wave = np.sin(2 * np.pi * (hour % 24) / 24)
    normal = rng.normal(size=(3, number))
    found = {
        "shift": normal[0] + wave,
        "scale": normal[1] * np.exp(0.5 * wave),
        "amount": np.exp(normal[2] + 0.8 * wave),
        "stepped": rng.poisson(5.0 + 3.0 * wave, number),
    }
    return {name: column.astype(np.float32) for name, column in found.items()}


def fitted(schema, sample_rows, hourly=HOURLY):
    rng = np.random.default_rng(1)
    builder = ProfileBuilder(schema, sample_rows=sample_rows)
    for hour in range(5 * WEEK):
        data = rows(rng, hour, hourly)
        builder.add({t.name: data[t.name] for t in schema.tensors}, hour=hour % WEEK)
    return builder.build()


@pytest.fixture(scope="module", params=[1_000_000, 4096, 500])
def sample_rows(request):
    """All rows, those of fourteen hours, or of two."""
    return request.param


@pytest.fixture(scope="module")
def profile(sample_rows):
    return fitted(SCHEMA, sample_rows)


def residual(profile, hours, number=40_000):
    """The mean scores of fresh rows without their season, (features, 2)."""
    rng = np.random.default_rng(2)
    window = profile.accumulator()
    for hour in hours:
        window.update(rows(rng, hour, number))
    counts = window.take()
    summary = profile.season.removed_from(
        profile.projection.summarise(counts), dict.fromkeys(hours, number)
    )
    own = len(NAMES)
    scores = np.stack((summary.location, summary.scale), axis=1)[:own]
    return scores / summary.finite[:own, None]


@pytest.mark.parametrize("hour", [3, 6, 12, 18])
def test_nothing_of_the_season_is_left_in_any_hour(profile, hour):
    # Four standard errors of the mean of five weeks in an hour are 0.1.
    assert np.abs(residual(profile, [hour])).max() < 0.15


def test_unchanged_data_with_a_season_raise_no_more_alarms_than_allowed(sample_rows):
    schema = Schema.from_tensors([Tensor("shift")])
    profile = fitted(schema, sample_rows)
    month = 30 * 24
    monitor = Monitor(profile, AlarmSettings(windows_per_false_alarm=month))
    window = profile.accumulator()
    rng = np.random.default_rng(3)
    raised = 0
    for hour in range(month):
        data = {"shift": rows(rng, hour, HOURLY)["shift"]}
        window.update(data, hour=hour % WEEK)
        raised += monitor.update(window.take()).raised
    assert raised <= 1


@pytest.mark.parametrize("windows_an_hour", [1, 6])
def test_seasons_of_few_rows_raise_no_alarms_in_many(windows_an_hour):
    schema = Schema.from_tensors([Tensor("shift")])
    profile = fitted(schema, 1_000_000, hourly=60)
    month = 30 * 24
    settings = AlarmSettings(windows_per_false_alarm=month * windows_an_hour)
    raised = 0
    for seed in range(4):
        monitor = Monitor(profile, settings)
        window = profile.accumulator()
        rng = np.random.default_rng(seed)
        for hour in range(month):
            for _ in range(windows_an_hour):
                data = rows(rng, hour, 5 * 60 // windows_an_hour)["shift"]
                window.update({"shift": data}, hour=hour % WEEK)
                raised += monitor.update(window.take()).raised
    # One a month is allowed; more than 8 in four months have a probability of 0.02.
    assert raised <= 8


def test_values_that_go_missing_count_in_full_however_many_rows_come():
    profile = fitted(Schema.from_tensors([Tensor("shift")]), 1_000_000, hourly=60)
    monitor = Monitor(profile, AlarmSettings(windows_per_false_alarm=1000))
    window = profile.accumulator()
    rng = np.random.default_rng(6)
    for minute in range(0, 60, 6):
        data = rows(rng, 3, 6000)["shift"]
        if minute >= 30:
            data[:100] = np.nan
        window.update({"shift": data}, hour=3)
        verdict = monitor.update(window.take())
        assert verdict.alarm == (minute >= 30), minute


def test_data_without_times_beside_a_reference_with_seasons_are_not_guaranteed():
    profile = fitted(Schema.from_tensors([Tensor("shift")]), 1_000_000)
    rng = np.random.default_rng(4)
    timed, timeless = profile.accumulator(), profile.accumulator()
    for hour in range(6):
        data = {"shift": rows(rng, hour, HOURLY)["shift"]}
        timed.update(data, hour=hour)
        timeless.update(data)
    found = judge(profile, timed.take())
    assert found.outcome != "drift"
    assert (found.kept, found.caveats) == (True, ())
    found = judge(profile, timeless.take())
    assert (found.outcome, found.kept) == ("drift", False)
    (caveat,) = found.caveats
    assert "the data have no times" in caveat
    assert "--time" in caveat
