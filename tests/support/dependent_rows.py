"""Tables whose rows depend on each other, as those of real traffic do."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

DAY = 2000
"""Rows of a day."""


def correlated(rng, rows, columns, correlation):
    """Independent normal rows; the first two columns have this correlation."""
    x = rng.normal(size=(rows, columns))
    x[:, 1] = correlation * x[:, 0] + np.sqrt(1 - correlation**2) * x[:, 1]
    return x.astype(np.float32)


def autoregressive(rng, columns, power=0.9):
    """Each column an AR(1) of its own."""
    last = power * rng.normal(size=(1, columns))

    def draw(rows):
        nonlocal last
        noise = rng.normal(size=(rows, columns)) * np.sqrt(1 - power**2)
        x, last = lfilter([1.0], [1.0, -power], noise, axis=0, zi=last)
        return x.astype(np.float32)

    return draw


def daily_waves(rng, columns):
    """All columns rise and fall with the hour, some more than others."""
    reach, now = rng.uniform(0, 1.5, columns), 0

    def draw(rows):
        nonlocal now
        hour = (now + np.arange(rows)) / DAY
        now += rows
        wave = np.sin(2 * np.pi * hour)[:, None] * reach
        return (rng.normal(size=(rows, columns)) + wave).astype(np.float32)

    return draw


def blocks(rng, columns, size=100):
    """Customers: `size` rows share a level of each column and a correlation of two."""
    left, level, tie = 0, np.zeros(columns), 0.0

    def draw(rows):
        nonlocal left, level, tie
        x = rng.normal(size=(rows, columns))
        start = 0
        while start < rows:
            if not left:
                left, tie = size, rng.uniform(-0.5, 0.5)
                level = rng.normal(size=columns) * 0.4
            stop = min(rows, start + left)
            part = x[start:stop]
            part[:, 1] = tie * part[:, 0] + np.sqrt(1 - tie**2) * part[:, 1]
            part += level
            left -= stop - start
            start = stop
        return x.astype(np.float32)

    return draw


DEPENDENT = {
    "autoregressive": autoregressive,
    "daily waves": daily_waves,
    "blocks": blocks,
}
