"""The fit of power to busy time, against scipy, brute force and ordinary least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from exporter.features.energy import power_fit
from exporter.features.energy.power_fit import (
    NO_OTHER_LOAD,
    OtherLoad,
    Windows,
    fit,
)

TRUE_WATTS = np.array([250.0, 80.0])
IDLE = 60.0


def windows_of(rng, count=240, *, noise=5.0, baseline=0.0, busy=None):
    """Windows of two models and of independent noise, read without delay."""
    busy = rng.uniform(0.0, 1.0, (count, 2)) if busy is None else busy
    count = len(busy)
    power = IDLE + baseline + busy @ TRUE_WATTS + rng.normal(0, noise, count)
    lonely = np.zeros(count, bool)
    return Windows(
        busy, power[:, None], np.full(count, 5.0), np.zeros((count, 1)), lonely
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("baseline", [0.0, 12.0])
def test_many_windows_give_the_estimates_and_intervals_of_ordinary_least_squares(
    seed, baseline
):
    windows = windows_of(np.random.default_rng(seed), baseline=baseline)
    found = fit(windows, IDLE)
    design = np.column_stack((windows.busy, np.ones(240)))
    shown = windows.power[:, 0] - IDLE
    wanted, (squares,), _, _ = np.linalg.lstsq(design, shown)
    inverse = np.linalg.inv(design.T @ design)
    deviations = np.sqrt(squares / 237 * np.diagonal(inverse))
    assert found.watts == pytest.approx(wanted[:2], rel=0.01)
    assert found.baseline_watts == pytest.approx(wanted[2], abs=1.0)
    assert found.residual_variance == pytest.approx(squares / 240, rel=0.01)
    ratio = found.half_widths / (stats.t.ppf(0.975, 237) * deviations[:2])
    assert np.all((ratio > 0.97) & (ratio < 1.5))
    assert found.lag_seconds is None


def test_models_that_always_run_together_share_what_is_above_idle():
    busy = np.repeat(np.linspace(0.2, 0.9, 30)[:, None], 2, axis=1)
    found = fit(windows_of(np.random.default_rng(1), busy=busy, noise=0.1), IDLE)
    assert found.watts == pytest.approx([165.0, 165.0], rel=0.01)
    assert np.isnan(found.half_widths).all()


@pytest.mark.parametrize(("left", "told"), [(0.24, True), (0.26, False)])
def test_an_interval_is_given_where_windows_halve_the_priors_deviation(left, told):
    rng = np.random.default_rng(3)
    design = rng.choice([-1.0, 1.0], (200, 1)) * np.sqrt((1 / left - 1) / 200)
    (width,), (worth,) = power_fit._half_widths(design, rng.normal(size=200), 1.0)
    assert np.isfinite(width) == np.isfinite(worth) == told


@pytest.mark.parametrize("others", [NO_OTHER_LOAD, OtherLoad(20.0, 40.0)])
def test_of_steady_work_the_baseline_is_what_other_load_took_without_it(others):
    steady = np.tile([[0.5, 0.5]], (40, 1))
    windows = windows_of(
        np.random.default_rng(2), baseline=20.0, busy=steady, noise=0.1
    )
    found = fit(windows, IDLE, others)
    assert steady[0] @ found.watts + found.baseline_watts == pytest.approx(185, abs=1)
    assert found.baseline_watts == pytest.approx(others.watts, abs=0.5)


@pytest.mark.parametrize("seed", range(4))
def test_power_of_the_next_window_that_is_read_in_one_counts_as_the_nexts(seed):
    """Interpolated at the end of a window, half of the smear is the work after it."""
    rng, smear, seconds = np.random.default_rng(seed), 2.0, 5.0
    busy = rng.uniform(0.0, 1.0, (40, 2))
    read, rise = busy.copy(), np.diff(busy, axis=0) * 0.5 * smear / seconds
    read[:-1] += rise
    read[1:] -= rise
    power = IDLE + read @ TRUE_WATTS + rng.normal(0, 3.0, 40)
    follows = np.arange(40) > 0
    every = np.full(40, seconds)
    found = fit(
        Windows(busy, power[:, None], every, np.full((40, 1), smear), follows), IDLE
    )
    # With the smear in the other direction they are 18 % off, and the variance is 44.
    assert found.watts == pytest.approx(TRUE_WATTS, rel=0.1)
    assert found.residual_variance < 16.0
