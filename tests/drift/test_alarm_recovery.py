"""An alarm ends by evidence that the data are as before, not by a lack of data."""

from __future__ import annotations

import numpy as np
import pytest
from drifting_data import SCHEMA, draw, window_of

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.fitting import fit

SETTINGS = AlarmSettings(windows_per_false_alarm=1000)


def alarmed(rng, shift):
    profile = fit(SCHEMA, draw(rng, 10_000))
    monitor = Monitor(profile, SETTINGS)
    for _ in range(60):
        if monitor.update(window_of(profile, draw(rng, 500, shift=shift))).alarm:
            return profile, monitor
    raise AssertionError("no alarm in 60 windows")


@pytest.mark.parametrize("shift", [0.3, 0.5])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_alarm_lasts_while_the_shifted_data_are_few(shift, restarts):
    rng = np.random.default_rng(7)
    profile, monitor = alarmed(rng, shift)
    for _ in range(60):
        if restarts:
            state = monitor.state()
            monitor = Monitor(profile, SETTINGS)
            monitor.resume(state)
        assert monitor.update(window_of(profile, draw(rng, 3, shift=shift))).alarm


def test_an_alarm_ends_once_as_many_rows_as_raised_it_are_as_before():
    rng = np.random.default_rng(8)
    profile, monitor = alarmed(rng, 1.0)
    windows = 0
    while monitor.update(window_of(profile, draw(rng, 50))).alarm:
        windows += 1
        assert windows < 60
    # Ten windows hold as many rows as the one of the alarm.
    assert windows >= 10
