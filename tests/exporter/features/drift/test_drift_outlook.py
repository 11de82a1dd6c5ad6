"""Points of a forecast, kept over restarts."""

from __future__ import annotations

from clocks import Clock

from exporter.features.drift.drift_outlook import Outlooks
from exporter.features.drift.drift_settings import DriftForecastSettings


def test_points_that_are_restored_again_are_not_doubled():
    clock = Clock()
    settings = DriftForecastSettings(accuracy_floor=0.8, every_seconds=10)
    outlooks = Outlooks(settings, clock)
    for number in range(20):
        outlooks.add(None, 0.95 - 0.001 * number)
        clock.now += 10
    saved = outlooks.state()
    outlooks.restore(saved)
    assert outlooks.state() == saved
