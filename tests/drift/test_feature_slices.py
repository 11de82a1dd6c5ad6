"""Features a part at a time give what all at once would have given."""

from __future__ import annotations

import numpy as np
import pytest

from drift import grid, statistics
from drift.alarms import monitor as monitors
from drift.alarms.monitor import AlarmSettings, Monitor
from drift.comparison import Baseline
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit

NUMBERS, CATEGORIES = 9, 4
SCHEMA = Schema(
    (Tensor("x", "FP32", (NUMBERS,)), Tensor("c", "INT64", (CATEGORIES,))),
    (
        *(Feature(f"x{i}", "x", i) for i in range(NUMBERS)),
        *(Feature(f"c{i}", "c", i, "categorical") for i in range(CATEGORIES)),
    ),
)
EVERY = (
    statistics.Psi(),
    statistics.KolmogorovSmirnov(),
    statistics.Wasserstein(),
)


def rows(rng, number, shift=0.0):
    # Rows come in stretches, so that there is dependence to measure.
    stretches = rng.normal(size=(number // 20 + 1, NUMBERS))
    x = rng.normal(size=(number, NUMBERS)) + np.repeat(stretches, 20, axis=0)[:number]
    x[:, 7] += shift
    x[rng.random(x.shape) < 0.01] = np.nan
    x[rng.random(x.shape) < 0.01] = np.inf
    return {"x": x.astype(np.float32), "c": rng.integers(0, 5, (number, CATEGORIES))}


def told():
    """Everything that a reference, counts, alarms and distances say of some traffic."""
    rng = np.random.default_rng(3)
    profile = fit(SCHEMA, rows(rng, 4000))
    monitor, baseline = Monitor(profile, AlarmSettings(500)), Baseline(profile)
    found = [profile.dispersion.channels(), profile.dispersion.growth]
    alarms = []
    for number in range(24):
        window = profile.accumulator()
        window.update(rows(rng, 400, 4.0 if 8 <= number < 16 else 0.0))
        counts = window.take()
        verdict = monitor.update(counts)
        alarms.append(verdict.alarm)
        found += [counts.cells, verdict.features, np.array(verdict.log_evidence)]
        found += [c.log_evidence for c in verdict.culprits]
        found += [baseline.profile.projection.coarse(counts.cells)]
        found += [each.distance(baseline.compare(counts)) for each in EVERY]
    assert True in alarms[8:16]
    assert not any(alarms[:8])
    return found


@pytest.mark.parametrize("together", [1, 4])
def test_the_size_of_a_part_changes_nothing(together, monkeypatch):
    whole = told()
    monkeypatch.setattr(grid, "TOGETHER", together)
    monkeypatch.setattr("drift.comparison.TOGETHER", together)
    monkeypatch.setattr(monitors, "_TOGETHER", together)
    for one, other in zip(whole, told(), strict=True):
        # Sums over many features may be taken in another order.
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_parts_cover_every_feature_once():
    for features in (1, 63, 64, 65, 200):
        covered = [
            i for part in grid.feature_slices(features) for i in range(features)[part]
        ]
        assert covered == list(range(features))
    assert list(grid.feature_slices(0)) == [slice(0, 0)]
