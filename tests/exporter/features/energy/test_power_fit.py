"""The fit of power to busy time, against scipy, brute force and ordinary least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from exporter.features.energy import power_fit
from exporter.features.energy.power_fit import (
    DELAYS,
    LAG_STEP_SECONDS,
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


@pytest.mark.parametrize("lag", [0.0, 0.2, 1.3, 4.75])
def test_the_best_delay_is_the_least_squares_of_all_delays(lag):
    rng = np.random.default_rng(5)
    read = rng.normal(0, 1, (50, DELAYS.size))
    place, part = divmod(lag, LAG_STEP_SECONDS)
    part /= LAG_STEP_SECONDS
    first, second = int(place), int(place) + 1
    # At this delay nothing is left but a thousandth.
    read[:, second] = 2 * rng.normal(0, 1, 50)
    read[:, first] = -read[:, second] * part / (1 - part) + rng.normal(0, 1e-3, 50)
    found, share, gain = power_fit._best_delay(read)

    def squares(delay):
        low = min(int(delay), DELAYS.size - 2)
        value = (1 - delay + low) * read[:, low] + (delay - low) * read[:, low + 1]
        return np.square(value).sum()

    steps = np.linspace(0, DELAYS.size - 1, 20_001)
    best = min(steps, key=squares)
    assert found + share == pytest.approx(best, abs=1e-3)
    least = squares(found + share)
    assert least <= squares(best) * (1 + 1e-9)
    assert gain == pytest.approx(50 * (squares(0) - least) / least)


@pytest.mark.parametrize("seed", range(20))
def test_bounded_coefficients_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(30, 4))
    shown = design @ np.array([1.0, -0.4, 0.3, -2.0]) + rng.normal(0, 0.1, 30)
    least, variance = np.array([-0.2, -0.3, 0.4, -np.inf]), 0.01
    ridged = np.vstack((design, np.sqrt(variance) * np.eye(4)))
    wanted = optimize.lsq_linear(
        ridged, np.append(shown, np.zeros(4)), (least, np.inf), tol=1e-12
    )
    found = power_fit._bounded(design, shown, variance, np.nan_to_num(least))
    assert found == pytest.approx(wanted.x, abs=1e-5)


def test_the_ridge_s_variance_is_squares_over_windows_less_effective_parameters():
    rng = np.random.default_rng(8)
    design = rng.normal(size=(40, 3))
    rest = design @ rng.normal(size=(3, 2)) + rng.normal(0, [0.5, 2.0], (40, 2))
    variances, residuals = power_fit._ridge(design, rest)
    for column, (variance, left) in enumerate(zip(variances, residuals.T, strict=True)):
        hat = (
            design @ np.linalg.inv(design.T @ design + variance * np.eye(3)) @ design.T
        )
        wanted = rest[:, column] - hat @ rest[:, column]
        assert left == pytest.approx(wanted, rel=1e-3, abs=1e-4)
        assert variance == pytest.approx(left @ left / (40 - np.trace(hat)), rel=1e-3)


@pytest.mark.parametrize("memory", [0.6, -0.4])
def test_residuals_are_freed_of_the_one_before_within_each_sequence(memory):
    rng = np.random.default_rng(9)
    follows = np.arange(4000) % 1000 > 0
    shocks, values = rng.normal(size=4000), np.zeros(4000)
    for place in range(4000):
        before = values[place - 1] if follows[place] else None
        values[place] = (
            shocks[place] / np.sqrt(1 - memory**2)
            if before is None
            else memory * before + shocks[place]
        )
    assert power_fit._memory(follows, values) == pytest.approx(memory, abs=0.04)
    (freed,) = power_fit._freed(follows, memory, values)
    assert freed == pytest.approx(shocks)


def test_what_is_moved_to_the_next_window_is_lost_to_none():
    follows = np.array([False, True, True, False, True])
    seconds = np.array([5.0, 5.0, 10.0, 5.0, 5.0])
    windows = Windows(np.zeros((5, 1)), np.zeros((5, 1)), seconds, seconds, follows)
    values, smear = np.array([1.0, 3.0, 3.0, 8.0, 2.0]), np.array([0.5, 1, 1, 1, 1])
    moved = power_fit._moved(windows, values, smear)
    # Half a second of the second window's 3 in the first one, and of its 1 in that.
    assert moved == pytest.approx([0.2, -0.2, 0.0, -1.2, 1.2])
    assert moved @ seconds == pytest.approx(0)
