"""Windows of any length beside a reference with seasons, and across a restart."""

from __future__ import annotations

import numpy as np
import pytest
from clocks import Clock

from drift.features import Schema, Tensor
from drift.fitting import ProfileBuilder
from exporter.features.drift.drift_settings import DriftSettings
from exporter.features.drift.drift_watch import Watch

WEEK = 24 * 7
HOURLY = 60
HOUR_SECONDS = 3600.0
# A Monday, 0:00.
EPOCH = 345_600.0 + 2_000 * 604_800.0
SCHEMA = Schema.from_tensors([Tensor("x")])


def rows(rng, hour, number):
    wave = 0.8 * np.sin(2 * np.pi * (hour % 24) / 24)
    return {"x": (rng.normal(size=number) + wave).astype(np.float32)}


@pytest.fixture(scope="module")
def profile():
    rng = np.random.default_rng(1)
    builder = ProfileBuilder(SCHEMA)
    for hour in range(6 * WEEK):
        builder.add(rows(rng, hour, HOURLY), hour=hour % WEEK)
    return builder.build()


class Watched:
    """A watch, its clock, and its restarts."""

    def __init__(self, profile, window):
        self.clock = Clock()
        self._profile = profile
        self._settings = DriftSettings.model_validate({"learn": {}, "window": window})
        self.watch = self._fresh()
        self.alarms = 0

    def _fresh(self):
        return Watch(
            self._profile,
            self._settings,
            clock=self.clock,
            wall_clock=lambda: EPOCH + self.clock.now,
        )

    def restart(self):
        state = b"".join(self.watch.state())
        self.watch = self._fresh()
        self.watch.restore(state)

    def run(self, hours, *, shift=0.0, restart_every=None):
        """Let hours pass, six requests in each."""
        rng = np.random.default_rng(5)
        for hour in range(hours):
            for _ in range(6):
                data = rows(rng, hour, HOURLY // 6)
                self.watch.add({"x": data["x"] + np.float32(shift)})
                self.clock.now += HOUR_SECONDS / 6
                if self.watch.step():
                    self.alarms += self.watch.result.verdict.raised
            if restart_every and hour % restart_every == restart_every - 1:
                self.restart()


WINDOWS = {
    "a day": {"rows": 500, "seconds": 86_400},
    "until there are rows": {"rows": 500, "seconds": 600},
    "an hour": {"rows": 30, "seconds": 3600},
}


@pytest.mark.parametrize("restart_every", [None, 7])
@pytest.mark.parametrize("window", WINDOWS)
def test_unchanged_data_with_a_season_raise_no_alarm(profile, window, restart_every):
    watched = Watched(profile, WINDOWS[window])
    watched.run(30 * 24, restart_every=restart_every)
    assert watched.alarms == 0


@pytest.mark.parametrize("window", WINDOWS)
def test_a_shift_is_found_beside_the_season(profile, window):
    watched = Watched(profile, WINDOWS[window])
    watched.run(4 * 24, shift=0.5)
    assert watched.watch.result.verdict.alarm
