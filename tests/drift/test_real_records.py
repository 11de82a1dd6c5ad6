"""The promise on real records: a year of flights and of weather, day by day."""

from __future__ import annotations

import numpy as np
import pytest
import real_records
from real_records import Records

from drift.alarms.monitor import Monitor
from drift.dispersion import Dispersion
from drift.limits import FAR


@pytest.fixture(scope="module", params=["flights", "weather"])
def records(request) -> Records:
    return real_records.load(request.param)


@pytest.mark.parametrize("stretch", [1, 7])
def test_days_of_the_same_year_raise_no_more_than_twice_the_wanted_alarms(
    records, stretch
):
    runs = [
        real_records.replay(records, stretch, np.random.default_rng([seed, stretch]))
        for seed in range(2)
    ]
    windows = sum(run.windows for run in runs)
    alarms = [names for run in runs for names in run.alarms]
    assert windows > 240
    # Twice 1 in 1,000 is 0.5 alarms; 4 or more has chance 2e-3 (Poisson).
    assert len(alarms) <= 3, alarms


def test_without_their_dependence_the_same_days_alarm_all_the_time(records):
    run = real_records.replay(records, 7, np.random.default_rng(0), ordered=False)
    # An alarm that stands is raised once; the days around it raise no second one.
    assert run.alarms


def test_the_days_that_hang_together_are_found_and_the_far_ones_named(records):
    profile = real_records.fit(records, list(range(len(records.days))))
    spread = profile.dispersion
    numeric = profile.schema.numeric
    assert (spread.location[:numeric] > 5).sum() >= numeric - 2
    far = [
        n
        for n, growth in zip(profile.names, spread.growth, strict=True)
        if growth > FAR
    ]
    assert far
    assert far[0] in profile.caveats[0]


@pytest.mark.parametrize(("minutes", "most"), [(60, 14), (20, 20)])
def test_later_flights_are_still_found(minutes, most):
    records = real_records.load("flights")
    order = real_records.dealt(len(records.days), 1, np.random.default_rng(3))
    profile = real_records.fit(records, order[:240])
    monitor = Monitor(profile, real_records.SETTINGS)
    found = None
    for number, day in enumerate(order[240:280]):
        rows = {name: values.copy() for name, values in records.days[day].items()}
        if number >= 10:
            rows["x"][:, 0] += minutes
        window = profile.accumulator()
        window.update(rows)
        if monitor.update(window.take()).raised:
            found = number - 9
            break
    assert found is not None
    assert 0 < found <= most


def test_one_day_unlike_any_other_is_no_alarm_by_itself_and_a_week_of_it_is():
    records = real_records.load("flights")
    order = real_records.dealt(len(records.days), 1, np.random.default_rng(4))
    profile = real_records.fit(records, order[:240])

    def storm(day):
        rows = {name: values.copy() for name, values in records.days[day].items()}
        rows["x"][::2, :3] = np.nan
        return rows

    def raised(storms):
        monitor = Monitor(profile, real_records.SETTINGS)
        verdicts = []
        for number, day in enumerate(order[240:260]):
            window = profile.accumulator()
            window.update(storm(day) if number in storms else records.days[day])
            verdicts.append(monitor.update(window.take()).raised)
        return any(verdicts)

    assert not raised({10})
    assert raised(set(range(6, 20)))


def test_the_longer_the_stretch_the_more_it_may_say_and_independent_rows_anything():
    one = Dispersion.independent(1)
    assert np.isinf(one.most(np.array([5.0]), 1000)).all()
    unit = np.full((1, 6), 100.0)
    dependent = Dispersion(
        one.location, one.scale, one.shape, one.events, one.growth, unit, one.shown
    )
    most = dependent.most(np.array([[1.0], [100.0], [101.0]]), 1000)[:, 0, 0]
    assert np.allclose(most, np.log(11) * np.array([1, 1, 2]))
