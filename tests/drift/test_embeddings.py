"""Wide vectors: sketches that raise alarms as features do."""

from __future__ import annotations

import numpy as np
import pytest

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.embeddings import VectorSketch
from drift.errors import SchemaError, StateError
from drift.features import Schema
from drift.fitting import fit

WIDTH = 64


def monitored(rng, sketch, change):
    schema = Schema((sketch.tensor,), sketch.features)

    def rows(number, change=lambda x: x):
        vectors = change(rng.normal(size=(number, WIDTH)))
        return {sketch.tensor.name: sketch.apply(vectors)}

    profile = fit(schema, rows(5000))
    monitor = Monitor(profile, AlarmSettings(windows_per_false_alarm=1000))
    verdicts = []
    for number in range(12):
        window = profile.accumulator()
        window.update(rows(500) if number < 6 else rows(500, change))
        verdicts.append(monitor.update(window.take()))
    return verdicts


@pytest.mark.parametrize(
    ("change", "features"),
    [
        (lambda x: x * 1.05, {"norm", "deviation"}),
        (lambda x: x + 0.05, {"mean"}),
        (lambda x: np.where(np.arange(len(x))[:, None] % 20, x, np.nan), None),
    ],
)
def test_a_change_of_vectors_alarms_and_none_before_it_does(change, features):
    rng = np.random.default_rng(0)
    verdicts = monitored(rng, VectorSketch("e", WIDTH, projections=8), change)
    assert not any(verdict.alarm for verdict in verdicts[:6])
    assert verdicts[9].alarm
    named = verdicts[9].culprits[0].feature.removeprefix("e.")
    assert features is None or named in features


def test_norm_mean_and_deviation_are_numpys():
    vectors = np.random.default_rng(1).normal(size=(50, WIDTH))
    sketch = VectorSketch("e", WIDTH).apply(vectors)
    assert np.allclose(sketch[:, 0], np.linalg.norm(vectors, axis=1), rtol=1e-5)
    assert np.allclose(sketch[:, 1], vectors.mean(axis=1), atol=1e-6)
    assert np.allclose(sketch[:, 2], vectors.std(axis=1), rtol=1e-5)


def test_projections_keep_squared_length_on_average():
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(200, WIDTH))
    projected = VectorSketch("e", WIDTH, projections=400).apply(vectors)[:, 3:]
    ratio = WIDTH * (projected**2).mean(axis=1) / (vectors**2).sum(axis=1)
    # Each is a chi-square of 400 over 400: deviation 7 %; their mean shares one matrix.
    assert abs(ratio.mean() - 1.0) < 0.2
    assert np.all(np.abs(ratio - 1.0) < 0.5)


def test_the_same_seed_gives_the_same_sketch_and_another_seed_another():
    vectors = np.random.default_rng(3).normal(size=(5, WIDTH))
    first, second, third = (
        VectorSketch("e", WIDTH, seed=seed).apply(vectors) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first[:, 3:], third[:, 3:])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_missing_as_a_whole(value):
    vectors = np.ones((3, WIDTH))
    vectors[1, 5] = value
    sketch = VectorSketch("e", WIDTH).apply(vectors)
    assert np.isnan(sketch[1]).all()
    assert np.isfinite(sketch[[0, 2]]).all()


def test_huge_and_zero_vectors_have_finite_norms():
    vectors = np.stack([np.full(WIDTH, 1e30), np.zeros(WIDTH)])
    norms = VectorSketch("e", WIDTH).apply(vectors)[:, 0]
    assert np.allclose(norms, [8e30, 0.0])


def test_vectors_of_another_width_are_refused():
    with pytest.raises(StateError, match="64"):
        VectorSketch("e", WIDTH).apply(np.zeros((3, 5)))
    with pytest.raises(SchemaError):
        VectorSketch("e", 0)
