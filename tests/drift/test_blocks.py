"""Blocks of a reference keep sums in the sample's scores, not counts."""

from __future__ import annotations

import numpy as np
import pytest

from drift.alarm_calibration import STEP
from drift.features import Schema, Tensor
from drift.fitting import ProfileBuilder

SCHEMA = Schema.from_tensors([Tensor("x", "FP32", (3,)), Tensor("c", "INT64", (1,))])


def dependent(rng, number):
    """Rows that depend on each other in stretches of 40, and independent ones in x[2]."""
    common = np.repeat(rng.normal(size=(number // 40 + 1, 3)), 40, axis=0)[:number]
    common[:, 2] = 0.0
    x = rng.normal(size=(number, 3)) + common
    c = np.repeat(rng.integers(0, 4, (number // 40 + 1, 1)), 40, axis=0)[:number]
    return {"x": x.astype(np.float32), "c": c}


def built(data, **options):
    builder = ProfileBuilder(SCHEMA, **options)
    builder.add(data)
    return builder.build()


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_measures_the_dependence_of_all_rows_as_all_rows_do(seed):
    data = dependent(np.random.default_rng(seed), 40_000)
    whole, sampled = built(data), built(data, sample_rows=4096)
    assert sampled.rows == whole.rows == 40_000
    for name in ("location", "shape"):
        one, other = (getattr(p.dispersion, name) for p in (whole, sampled))
        assert np.array_equal(one > 1, other > 1), name
        # The calibration raises it in steps, of which one may be more or less.
        assert (np.abs(np.log(other / one)) < np.log(1.05 * STEP)).all(), name
    assert (whole.dispersion.location[:2] > 5).all()
    assert whole.dispersion.location[2] == 1
