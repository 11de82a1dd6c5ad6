"""Real dependent records day by day, in an order in which nothing changes.

A year in its own order has seasons, and an alarm in it may well be right. Dealt out anew
in stretches of some days, the year keeps what hangs together within a stretch, while
every part of it has the law of every other: an alarm is then false.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.features import Feature, Schema, Tensor
from drift.fitting import ProfileBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.reference import Profile

    Day = dict[str, NDArray[np.generic]]

DATA = Path(__file__).parents[1] / "data" / "drift"
MISSING = -32768
SETTINGS = AlarmSettings(windows_per_false_alarm=1000)
REFERENCE_SHARE = 2 / 3


@dataclass(frozen=True)
class Records:
    """A year of rows, day by day."""

    schema: Schema
    days: list[Day]


@dataclass(frozen=True)
class Replay:
    """Windows of a day each, and which features the false alarms among them named."""

    windows: int
    alarms: list[tuple[str, ...]]


def load(name: str) -> Records:
    """`flights` or `weather`."""
    data = np.load(DATA / f"{name}.npz")
    columns = [k for k in data.files if k != "day" and not k.endswith("_values")]
    numbers = [k for k in columns if data[k].dtype == np.int16]
    names = [k for k in columns if k not in numbers]
    x = np.stack([data[k] for k in numbers], axis=1).astype(np.float32)
    x[x == MISSING] = np.nan
    c = np.stack([data[k] for k in names], axis=1).astype(np.int64)
    schema = Schema(
        (Tensor("x", "FP32", (len(numbers),)), Tensor("c", "INT64", (len(names),))),
        (
            *(Feature(k, "x", i) for i, k in enumerate(numbers)),
            *(Feature(k, "c", i, "categorical") for i, k in enumerate(names)),
        ),
    )
    day = data["day"]
    bounds = np.searchsorted(day, np.arange(int(day.max()) + 2))
    parts = [slice(a, b) for a, b in itertools.pairwise(bounds) if b > a]
    return Records(schema, [{"x": x[part], "c": c[part]} for part in parts])


def dealt(count: int, stretch: int, rng: np.random.Generator) -> list[int]:
    """Days 0..count-1 in stretches of so many, the stretches in random order."""
    stretches = [
        range(start, min(start + stretch, count)) for start in range(0, count, stretch)
    ]
    order = rng.permutation(len(stretches))
    return [day for index in order for day in stretches[index]]


def fit(records: Records, days: list[int], *, ordered: bool = True) -> Profile:
    """A reference of those days."""
    builder = ProfileBuilder(records.schema, ordered=ordered)
    for day in days:
        builder.add(records.days[day])
    return builder.build()


def replay(
    records: Records, stretch: int, rng: np.random.Generator, *, ordered: bool = True
) -> Replay:
    """Two thirds of the year as the reference, the rest as windows of a day."""
    order = dealt(len(records.days), stretch, rng)
    cut = round(REFERENCE_SHARE * len(order))
    profile = fit(records, order[:cut], ordered=ordered)
    monitor = Monitor(profile, SETTINGS)
    alarms = []
    for day in order[cut:]:
        window = profile.accumulator()
        window.update(records.days[day])
        verdict = monitor.update(window.take())
        if verdict.raised:
            alarms.append(tuple(culprit.feature for culprit in verdict.culprits))
    return Replay(len(order) - cut, alarms)
