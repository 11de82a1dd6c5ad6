"""A forecast under the noise of real records: days of flights and of weather."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import real_records

from drift.forecast import Outlook, forecast

WINDOWS = 160
# Of the whole series, in standard deviations of its noise.
DECAY = 8.0


def daily_means(name):
    """The mean of every day of a year, by column; columns that are mostly there."""
    records = real_records.load(name)
    with warnings.catch_warnings():
        # A day without a single value of a column has no mean: a gap.
        warnings.simplefilter("ignore", RuntimeWarning)
        means = np.array(
            [
                np.nanmean(np.asarray(day["x"], np.float64), axis=0)
                for day in records.days
            ]
        )
    return [values for values in means.T if np.isfinite(values).mean() >= 0.9]


def without_year(values):
    """Less its mean and the first two harmonics of the year, in deviations."""
    angle = 2 * np.pi * np.arange(values.size) / 365.25
    waves = [np.ones(values.size)]
    waves += [f(k * angle) for k in (1, 2) for f in (np.cos, np.sin)]
    basis = np.stack(waves, axis=1)
    there = np.isfinite(values)
    weights = np.linalg.lstsq(basis[there], values[there], rcond=None)[0]
    rest = values - basis @ weights
    return rest / np.nanstd(rest)


def covered(noise, rng):
    """Whether the passage of a decay under this noise is inside; None without a date."""
    count = noise.size
    slope = DECAY / count
    # From early in the future to as long again as the past.
    ahead = float(rng.uniform(1, count))
    series = noise - slope * np.arange(count)
    found = forecast(series, -slope * (count - 1 + ahead), rng)
    if found.outlook is not Outlook.DECAY:
        return None
    return found.low <= ahead <= found.high


def stretch(columns, rng):
    values = columns[rng.integers(len(columns))]
    start = rng.integers(values.size - WINDOWS + 1)
    return values[start : start + WINDOWS]


@pytest.mark.parametrize("name", ["flights", "weather"])
def test_the_interval_covers_a_decay_under_real_noise(name):
    rng = np.random.default_rng([3, len(name)])
    columns = [without_year(values) for values in daily_means(name)]
    found = [covered(stretch(columns, rng), rng) for _ in range(60)]
    dated = [inside for inside in found if inside is not None]
    assert len(dated) >= 30
    # 90 % wanted; below 75 % of 30 or more has chance 1e-2 (binomial), far less of 60.
    assert np.mean(dated) >= 0.75
