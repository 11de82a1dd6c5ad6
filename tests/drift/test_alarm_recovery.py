"""An alarm ends by evidence that the data are as before, not by a lack of data."""

from __future__ import annotations

import numpy as np
import pytest
from drifting_data import SCHEMA, draw, window_of

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.fitting import fit

SETTINGS = AlarmSettings(windows_per_false_alarm=1000)


def alarmed(rng, shift, rows=500):
    """A profile, its monitor in alarm, and the windows that raised the alarm."""
    profile = fit(SCHEMA, draw(rng, 10_000))
    monitor = Monitor(profile, SETTINGS)
    for _ in range(200):
        verdict = monitor.update(window_of(profile, draw(rng, rows, shift=shift)))
        if verdict.alarm:
            return profile, monitor, verdict.since_windows
    raise AssertionError("no alarm in 200 windows")


def windows_until_the_end(rng, profile, monitor, rows):
    """The windows of unchanged data that end the alarm."""
    windows = 1
    while monitor.update(window_of(profile, draw(rng, rows))).alarm:
        windows += 1
        assert windows < 300
    return windows


@pytest.mark.parametrize("shift", [0.3, 0.5])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_alarm_lasts_while_the_shifted_data_are_few(shift, restarts):
    rng = np.random.default_rng(7)
    profile, monitor, _ = alarmed(rng, shift)
    for _ in range(60):
        if restarts:
            state = monitor.state()
            monitor = Monitor(profile, SETTINGS)
            monitor.resume(state)
        assert monitor.update(window_of(profile, draw(rng, 3, shift=shift))).alarm


def test_an_alarm_ends_once_as_many_rows_as_raised_it_are_as_before():
    rng = np.random.default_rng(8)
    profile, monitor, raised = alarmed(rng, 1.0)
    assert raised == 1
    # Ten windows hold as many rows as the one of the alarm.
    assert 10 <= windows_until_the_end(rng, profile, monitor, 50) < 20


def test_one_window_does_not_end_an_alarm():
    rng = np.random.default_rng(9)
    profile, monitor, _ = alarmed(rng, 1.0)
    assert windows_until_the_end(rng, profile, monitor, 500) == 2


@pytest.mark.parametrize("seed", range(4))
def test_an_alarm_that_took_many_windows_is_not_ended_by_a_few(seed):
    """They would show no change even while it lasts."""
    rng = np.random.default_rng(seed)
    profile, monitor, raised = alarmed(rng, 0.12, rows=50)
    assert raised > 16
    for _ in range(raised - 1):
        assert monitor.update(window_of(profile, draw(rng, 50, shift=0.12))).alarm
    state = monitor.state()
    monitor = Monitor(profile, SETTINGS)
    monitor.resume(state)
    assert windows_until_the_end(rng, profile, monitor, 50) < 5 * raised
