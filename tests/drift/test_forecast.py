"""Forecasts: dates for decay, none for shocks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from drift.forecast import MIN_WINDOWS, Outlook, forecast


def autoregressive(rng, count, strength, deviation):
    noise = np.empty(count)
    value = 0.0
    for index in range(count):
        value = strength * value + rng.normal() * deviation
        noise[index] = value
    return noise


@pytest.mark.parametrize("strength", [0.0, 0.4])
def test_the_interval_covers_the_passage_of_a_real_decay(strength):
    rng = np.random.default_rng([1, int(10 * strength)])
    covered, dated = 0, 0
    for _ in range(120):
        noise = autoregressive(rng, 80, strength, 0.004)
        found = forecast(0.95 - 0.001 * np.arange(80) + noise, 0.84, rng)
        if found.outlook is Outlook.DECAY:
            dated += 1
            covered += found.low <= 110 - 79 <= found.high
    assert dated >= 100
    # 90 % wanted; below 78 % of 100 or more has chance 3e-4 (binomial).
    assert covered / dated >= 0.78


def test_a_level_series_gets_no_date():
    rng = np.random.default_rng(2)
    outlooks = Counter(
        forecast(0.9 + 0.01 * rng.normal(size=60), 0.8, rng).outlook for _ in range(100)
    )
    # Wrongly believed in at most 5 % each; 16 or more of 100 has chance 5e-5 (binomial).
    assert outlooks[Outlook.DECAY] + outlooks[Outlook.STEADY] <= 15


def test_shocks_get_no_date():
    rng = np.random.default_rng(3)
    dated = 0
    for _ in range(50):
        level = 0.95 - 0.04 * (np.arange(60) >= rng.integers(35, 55))
        found = forecast(level + 0.003 * rng.normal(size=60), 0.85, rng)
        dated += found.outlook is Outlook.DECAY
    assert dated <= 15


def test_what_is_below_already_is_said_to_be():
    rng = np.random.default_rng(4)
    found = forecast(0.7 + 0.001 * rng.normal(size=50), 0.8, rng)
    assert found.outlook is Outlook.BELOW
    assert np.isnan(found.low)


def test_an_improving_series_never_passes():
    rng = np.random.default_rng(5)
    series = 0.8 + 0.002 * np.arange(60) + 0.001 * rng.normal(size=60)
    assert forecast(series, 0.7, rng).outlook is Outlook.STEADY


def test_too_few_windows_say_so_and_gaps_do_not_count():
    rng = np.random.default_rng(6)
    series = np.full(100, np.nan)
    series[: MIN_WINDOWS - 1] = 0.9
    assert forecast(series, 0.8, rng).outlook is Outlook.TOO_SHORT
    assert forecast(np.array([]), 0.8, rng).outlook is Outlook.TOO_SHORT


def test_a_constant_series_is_no_trend():
    found = forecast(np.full(50, 0.9), 0.8, np.random.default_rng(7))
    assert found.outlook is Outlook.SHOCKS
    assert found.gain <= 0.0


def test_the_same_seed_gives_the_same_forecast():
    series = 0.95 - 0.001 * np.arange(60)
    series += 0.002 * np.random.default_rng(8).normal(size=60)
    first, second = (forecast(series, 0.8, np.random.default_rng(9)) for _ in range(2))
    assert first == second
    assert first.outlook is Outlook.DECAY
