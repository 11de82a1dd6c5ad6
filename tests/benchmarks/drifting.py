"""Twenty mixed features, as they were and changed: what the drift benchmarks draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from drift.alarms.monitor import AlarmSettings
from drift.features import Feature, Schema, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.reference import Profile
    from drift.window import Counts

    Rows = dict[str, NDArray[np.generic]]

LEVELS = (2, 5, 20, 100)
MIXED = Schema(
    (Tensor("x", "FP32", (16,)), Tensor("c", "INT64", (len(LEVELS),))),
    (
        *(Feature(f"x{i}", "x", i) for i in range(16)),
        *(Feature(f"c{i}", "c", i, "categorical") for i in range(len(LEVELS))),
    ),
)
BUDGET = AlarmSettings(windows_per_false_alarm=1000)


def draw(
    rng: np.random.Generator,
    rows: int,
    *,
    shift: float = 0.0,
    scale: float = 1.0,
    missing: float = 0.0,
) -> Rows:
    """8 normal, 3 lognormal, 2 exponential, 1 uniform, 2 Student t with 3 degrees,
    categories of 2, 5, 20 and 100 levels; a change hits the first normal one only."""
    x = np.empty((rows, 16), np.float32)
    x[:, :8] = rng.normal(size=(rows, 8))
    x[:, 0] = x[:, 0] * scale + shift
    x[:, 8:11] = rng.lognormal(size=(rows, 3))
    x[:, 11:13] = rng.exponential(size=(rows, 2))
    x[:, 13] = rng.uniform(size=rows)
    x[:, 14:] = rng.standard_t(3, size=(rows, 2))
    if missing:
        x[rng.random(rows) < missing, 0] = np.nan
    c = np.stack([rng.integers(0, levels, size=rows) for levels in LEVELS], axis=1)
    return {"x": x, "c": c}


def counted(profile: Profile, rows: Rows) -> Counts:
    """One closed window."""
    window = profile.accumulator()
    window.update(rows)
    return window.take()
