"""What is divided adds up, nobody gets more than is possible, and the shares are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.features.energy.attribution import (
    MICRO,
    BusyPower,
    Shares,
    divide,
)
from exporter.features.energy.power_fit import OtherLoad

MANY_EXAMPLES = settings(max_examples=200)
KEYS = [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")]


@MANY_EXAMPLES
@given(
    energy=st.integers(0, 10**13),
    seconds=st.floats(0.05, 3600),
    weights=st.dictionaries(st.sampled_from(KEYS), st.floats(0, 1e9)),
    busy=st.floats(0, 1e5),
    idle=st.none() | st.floats(0, 2000),
    most=st.none() | st.floats(0, 2000),
    trusted=st.floats(0, 1),
)
def test_the_parts_are_never_negative_and_add_up_exactly(
    energy, seconds, weights, busy, idle, most, trusted
):
    shares = divide(
        energy,
        seconds,
        weights,
        busy_seconds=busy,
        idle_watts=idle,
        max_watts=most,
        trusted_ratio=trusted,
    )
    assert shares.idle + shares.unattributed + sum(shares.models.values()) == energy
    assert min(shares.idle, shares.unattributed, *shares.models.values(), 0) == 0


USUAL = {"busy_seconds": 1.0, "idle_watts": 100, "max_watts": None}


@pytest.mark.parametrize(
    ("joules", "weights", "changes", "models", "idle", "other"),
    [
        # Busy seconds times watts.
        (300, {"a": 0.5 * 300, "b": 0.25 * 200}, {}, {"a": 150, "b": 50}, 100, 0),
        (80, {"a": 1.0}, {}, {"a": 0}, 80, 0),
        (150, {}, {}, {}, 100, 50),
        (150, {"a": 0.0}, {}, {}, 100, 50),
        (80, {}, {}, {}, 80, 0),
        # No more than the device can draw while anything was busy.
        (400, {"a": 1.0}, {"busy_seconds": 0.01, "max_watts": 500}, {"a": 4}, 100, 296),
        (400, {"a": 1.0}, {"busy_seconds": 3.0, "max_watts": 350}, {"a": 250}, 100, 50),
        (400, {"a": 1.0}, {"idle_watts": None, "max_watts": 300}, {"a": 300}, 0, 100),
        (400, {"a": 1.0}, {"max_watts": 90}, {"a": 0}, 100, 300),
        (300, {"a": 1.0}, {"idle_watts": None}, {"a": 300}, 0, 0),
        # A part of what is idle by the model is others' in truth.
        (300, {"a": 1.0}, {"others_watts": 30}, {"a": 200}, 70, 30),
        (300, {"a": 1.0}, {"others_watts": 130}, {"a": 200}, 0, 100),
        # What differs from the estimate is the models' in part.
        (300, {"a": 100.0}, {"trusted_ratio": 0.25}, {"a": 125}, 100, 75),
        (200, {"a": 100.0}, {"trusted_ratio": 0.25}, {"a": 100}, 100, 0),
        (120, {"a": 100.0}, {"trusted_ratio": 0.25}, {"a": 80}, 40, 0),
        (10, {"a": 100.0}, {"trusted_ratio": 0.25}, {"a": 10}, 0, 0),
    ],
)
@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_a_window_is_divided_among_models_idle_power_and_others(
    joules, weights, changes, models, idle, other, seconds
):
    settings = USUAL | changes
    settings["busy_seconds"] *= seconds
    scale = int(seconds * MICRO)
    weights = {key: weight * seconds for key, weight in weights.items()}
    assert divide(joules * scale, seconds, weights, **settings) == Shares(
        {key: value * scale for key, value in models.items()},
        idle * scale,
        other * scale,
    )


@pytest.mark.parametrize(
    ("seen", "residual", "trusted"),
    # 200 W while busy half of the time; no model varies by more than half.
    [(0.0, 5.0, 1.0), (0.1, 30.0, 1.0), (20.0, 20.0, 0.1), (20.0, 5.0, 1.0)],
)
def test_a_difference_is_the_models_as_far_as_windows_without_them_vary_less(
    seen, residual, trusted
):
    rng = np.random.default_rng(4)
    power = BusyPower()
    others = OtherLoad(0.0, seen)
    for _ in range(240):
        watts = 60 + 100 + rng.normal(0, residual)
        power.learn(watts, 1.0, {"a": 0.5}, 60.0, others=others)
    ratio = power.trusted_ratio({"a": 0.5})
    assert ratio == pytest.approx(trusted, abs=0.1)
    assert power.others_are_gone == (seen > 3 * residual)
    assert power.trusted_ratio({"a": 0.5, "never seen": 0.1}) == 1.0


def test_noise_makes_no_model_give_energy_back():
    rng = np.random.default_rng(7)
    power = BusyPower()
    for _ in range(200):
        busy = {key: float(rng.uniform(0, 1)) for key in "abc"}
        joules = 300 * busy["a"] + 5 * busy["b"] + float(rng.normal(0, 40))
        power.learn(max(0.0, joules), 1.0, busy)
        assert all(power.watts(key) > 0 for key in "abc")
    assert power.watts("a") > 4 * power.watts("b")


def test_more_models_than_there_are_places_cost_no_more_and_share_at_the_mean():
    power = BusyPower()
    busy = {f"model-{number}": 0.01 for number in range(500)}
    power.learn(500 * 0.01 * 200, 5.0, busy)
    assert power.watts("model-499") == pytest.approx(200)
    assert power.watts("model-0") == pytest.approx(200, rel=0.01)
    power.forget("model-0")
    assert power.watts("model-0") == pytest.approx(200, rel=0.01)


def test_a_new_model_takes_the_place_of_one_that_no_longer_runs():
    rng = np.random.default_rng(3)
    power = BusyPower()
    names = [f"model-{number}" for number in range(64)]
    power.learn(64 * 0.01 * 200, 1.0, dict.fromkeys(names, 0.01), 0.0)
    for _ in range(250):
        ratios = {"model-0": float(rng.uniform()), "new": float(rng.uniform())}
        power.learn(300 * ratios["model-0"] + 50 * ratios["new"], 1.0, ratios, 0.0)
    assert power.watts("model-0") == pytest.approx(300, rel=0.05)
    assert power.watts("new") == pytest.approx(50, rel=0.05)
