"""Joules per inference of two models, window by window, and how far they are known."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.catalogue import INFERENCES, MODEL_ENERGY, MODEL_ENERGY_ERROR
from exporter.features.comparison.comparison_collector import Resources
from exporter.samples import Sample

KEYS = (("a", "1"), ("b", "1"))
PLACE = ("host", "model")


def energy_interval(errors: dict[str, float]):
    rng = np.random.default_rng(8)
    resources = Resources(0.05, lambda **_: ())
    joules = np.zeros(2)
    for window in range(80):
        joules += np.array([10.0, 20.0]) * rng.uniform(9, 11, 2)
        resources.update(
            [
                *(
                    Sample(MODEL_ENERGY, energy, (*key, *PLACE, "busy_time"))
                    for key, energy in zip(KEYS, joules, strict=True)
                ),
                *(Sample(INFERENCES, 10.0 * window, key) for key in KEYS),
                *(
                    Sample(MODEL_ENERGY_ERROR, error, (model, "1", *PLACE))
                    for model, error in errors.items()
                ),
            ],
            KEYS,
        )
    return resources.intervals(("energy",))["energy"]


def test_the_errors_of_both_models_watts_widen_the_interval():
    plain = energy_interval({})
    assert plain.estimate == pytest.approx(1.0, abs=0.05)
    assert plain.low < 1.0 < plain.high
    wide = energy_interval({"a": 0.3, "b": 0.4, "other": 9.0})
    assert wide.estimate == plain.estimate
    assert 1 + wide.low == pytest.approx((1 + plain.low) / 1.5)
    assert 1 + wide.high == pytest.approx((1 + plain.high) * 1.5)
