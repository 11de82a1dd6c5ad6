"""Rows that drift on demand, and how many windows of them an alarm takes."""

from __future__ import annotations

import numpy as np

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.features import Feature, Schema, Tensor

SCHEMA = Schema(
    (Tensor("x", "FP32", (4,)), Tensor("c", "INT64", (2,))),
    (
        Feature("normal", "x", 0),
        Feature("lognormal", "x", 1),
        Feature("heavy", "x", 2),
        Feature("whole", "x", 3),
        Feature("few", "c", 0, "categorical"),
        Feature("many", "c", 1, "categorical"),
    ),
)
SETTINGS = AlarmSettings(windows_per_false_alarm=1000)


def draw(rng, rows, *, shift=0.0, scale=1.0, missing=0.0):
    x = np.stack(
        [
            rng.normal(size=rows) * scale + shift,
            rng.lognormal(size=rows),
            rng.standard_t(3, size=rows),
            rng.poisson(2.0, size=rows).astype(float),
        ],
        axis=1,
    )
    x[rng.random(rows) < missing, 0] = np.nan
    c = np.stack([rng.integers(0, 3, size=rows), rng.integers(0, 60, size=rows)], 1)
    return {"x": x.astype(np.float32), "c": c}


def window_of(profile, data, *, hour=None):
    window = profile.accumulator()
    window.update(data, hour=hour)
    return window.take()


def first_alarm(rng, profile, *, rows=500, limit=60, clean=0, **change):
    """Windows until the alarm (limit + 1 if none), and its verdict."""
    monitor = Monitor(profile, SETTINGS)
    for _ in range(clean):
        monitor.update(window_of(profile, draw(rng, rows)))
    for number in range(1, limit + 1):
        verdict = monitor.update(window_of(profile, draw(rng, rows, **change)))
        if verdict.alarm:
            return number, verdict
    return limit + 1, verdict
