"""Honesty of the joint feature: false alarms on dependent rows, and windows to an alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import figures
import numpy as np
from dependent_rows import DEPENDENT, correlated
from scipy import stats

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.features import JOINT, Schema, Tensor
from drift.fitting import fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

    from drift.alarms.monitor import Verdict

COLUMNS = 20
FEW = 8
SCHEMA = Schema.from_tensors([Tensor("x", "FP32", (COLUMNS,))])
WINDOW_ROWS = 500
WINDOWS = 60
LIMIT = 40
BUDGET = AlarmSettings(windows_per_false_alarm=1000)
CHANGES = (
    (0.0, 0.95),
    (0.0, 0.5),
    (0.5, 0.9),
    (0.9, -0.9),
    (0.95, 0.0),
    (0.0, 0.3),
    (0.0, 0.2),
)


def false_alarms(*, quick: bool = False) -> Iterator[Figure]:
    """Alarms while nothing changes, of all features, at a budget of 1 in 1,000 windows."""
    runs = 2 if quick else 40
    for kind, begin in DEPENDENT.items():
        rng = np.random.default_rng(figures.SEED)
        alarms = joint = 0
        for _ in range(runs):
            draw = begin(rng, COLUMNS)
            profile = fit(SCHEMA, {"x": draw(20_000)})
            monitor, window = Monitor(profile, BUDGET), profile.accumulator()
            for _ in range(WINDOWS):
                window.update({"x": draw(WINDOW_ROWS)})
                verdict = monitor.update(window.take())
                alarms += verdict.raised
                joint += verdict.raised and _named(verdict)
        windows = runs * WINDOWS
        low, high = stats.binomtest(alarms, windows).proportion_ci()
        yield figures.at_most(
            f"honesty.joint.false_alarms.{kind.replace(' ', '_')}",
            1000 * alarms / windows,
            "alarms/1000 windows",
            1.0,
            measured=f"windows of {WINDOW_ROWS} rows x {COLUMNS} columns after a reference of "
            f"20,000 rows drawn anew each {WINDOWS} windows; `joint`: alarms that name {JOINT}",
            n=windows,
            seed=figures.SEED,
            ci_low=1000 * low,
            ci_high=1000 * high,
            joint=joint,
        )


def delays(*, quick: bool = False) -> Iterator[Figure]:
    """Windows until another correlation of two in 20 columns is an alarm."""
    runs = 3 if quick else 40
    for before, after in CHANGES:
        rng = np.random.default_rng(figures.SEED)
        took = [_windows_to_alarm(rng, before, after) for _ in range(runs)]
        found = figures.median(took)
        yield figures.at_most(
            f"honesty.joint.delay.{before:g}_to_{after:g}",
            found.pop("value"),
            "windows",
            2 if abs(after - before) > 0.3 else None,
            measured=f"median of the windows of {WINDOW_ROWS} rows until an alarm names {JOINT}, "
            f"at 1 false alarm in 1,000 windows, {LIMIT + 1} if never",
            n=runs,
            seed=figures.SEED,
            worst=max(took),
            **found,
        )


def scale_delays(*, quick: bool = False) -> Iterator[Figure]:
    """Windows until a scale 1.5 times larger is an alarm, of rows that depend on each other."""
    runs = 3 if quick else 40
    for kind, begin in DEPENDENT.items():
        rng = np.random.default_rng(figures.SEED)
        took = [_windows_to_scale_alarm(rng, begin) for _ in range(runs)]
        found = figures.median(took)
        yield figures.at_most(
            f"honesty.joint.scale_delay.{kind.replace(' ', '_')}",
            found.pop("value"),
            "windows",
            5,
            measured=f"median of the windows of {WINDOW_ROWS} rows x {FEW} columns until an "
            "alarm, after a reference of 20,000 rows, all values times 1.5",
            n=runs,
            seed=figures.SEED,
            worst=max(took),
            **found,
        )


def _windows_to_scale_alarm(rng: np.random.Generator, begin: Any) -> int:
    draw = begin(rng, FEW)
    few = Schema.from_tensors([Tensor("x", "FP32", (FEW,))])
    profile = fit(few, {"x": draw(20_000)})
    monitor, window = Monitor(profile, BUDGET), profile.accumulator()
    for number in range(1, LIMIT + 1):
        window.update({"x": 1.5 * draw(WINDOW_ROWS)})
        if monitor.update(window.take()).raised:
            return number
    return LIMIT + 1


def _windows_to_alarm(rng: np.random.Generator, before: float, after: float) -> int:
    profile = fit(SCHEMA, {"x": correlated(rng, 10_000, COLUMNS, before)})
    monitor, window = Monitor(profile, BUDGET), profile.accumulator()
    for number in range(1, LIMIT + 1):
        window.update({"x": correlated(rng, WINDOW_ROWS, COLUMNS, after)})
        if _named(monitor.update(window.take())):
            return number
    return LIMIT + 1


def _named(verdict: Verdict) -> bool:
    return any(culprit.feature == JOINT for culprit in verdict.culprits)
