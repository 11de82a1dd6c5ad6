"""The pairs of columns that a change of correlations names."""

from __future__ import annotations

import numpy as np
import pytest
from dependent_rows import autoregressive
from drifting_data import SETTINGS, window_of

from drift import codec
from drift.alarms.monitor import Monitor
from drift.features import JOINT, Schema, Tensor
from drift.fitting import fit
from drift.joint import BATCH
from drift.joint_counting import MAX_PAIRS, changed_pairs
from drift.judgement import judge

COLUMNS = 20
SCHEMA = Schema.from_tensors([Tensor("x", "FP32", (COLUMNS,))])


def pairs_of(judgement):
    return [p.columns for f in judgement.changed if f.name == JOINT for p in f.pairs]


@pytest.mark.parametrize("power", [0.0, 0.6])
def test_one_planted_pair_of_twenty_columns_is_the_one_that_is_named(power):
    rng = np.random.default_rng(1)
    draw = autoregressive(rng, COLUMNS, power)
    profile = fit(SCHEMA, {"x": draw(10_000)})
    right = 0
    for _ in range(40):
        first, second = sorted(rng.choice(COLUMNS, 2, replace=False).tolist())
        x = draw(1500)
        x[:, second] = 0.8 * x[:, first] + 0.6 * x[:, second]
        found = judge(profile, window_of(profile, {"x": x}))
        right += pairs_of(found) == [(f"x[{first}]", f"x[{second}]")]
    assert right >= 38


def test_the_correlations_are_means_over_the_batches_of_both_sides():
    rng = np.random.default_rng(2)
    reference = rng.normal(size=(6400, 3)).astype(np.float32)
    data = rng.normal(size=(640, 3)).astype(np.float32)
    data[:, 2] += data[:, 0]
    schema = Schema.from_tensors([Tensor("x", "FP32", (3,))])
    profile = fit(schema, {"x": reference})
    (pair,) = changed_pairs(profile, [window_of(profile, {"x": data}).joint])
    assert (pair.first, pair.second) == ("x[0]", "x[2]")
    # A value further out than four deviations is bounded first.
    assert pair.reference == pytest.approx(mean_correlation(reference), abs=2e-3)
    assert pair.current == pytest.approx(mean_correlation(data), abs=2e-3)


def mean_correlation(rows):
    batches = rows.reshape(-1, BATCH, rows.shape[1])
    found = [np.corrcoef(batch[:, 0], batch[:, 2])[0, 1] for batch in batches]
    return np.tanh(np.arctanh(found).mean())


def test_several_changed_pairs_are_named_the_strongest_first():
    rng = np.random.default_rng(3)
    profile = fit(SCHEMA, {"x": rng.normal(size=(10_000, COLUMNS)).astype("f4")})
    x = rng.normal(size=(3000, COLUMNS)).astype("f4")
    for place, share in enumerate([0.7, 0.8, 0.75, 0.72]):
        x[:, 2 * place + 1] *= np.sqrt(1 - share**2)
        x[:, 2 * place + 1] += share * x[:, 2 * place]
    found = pairs_of(judge(profile, window_of(profile, {"x": x})))
    assert len(found) == MAX_PAIRS
    assert found[0] == ("x[2]", "x[3]")


def test_unchanged_data_and_windows_without_a_batch_name_no_pair():
    rng = np.random.default_rng(5)
    profile = fit(SCHEMA, {"x": rng.normal(size=(10_000, COLUMNS)).astype("f4")})
    window = window_of(profile, {"x": rng.normal(size=(2000, COLUMNS)).astype("f4")})
    found = judge(profile, window)
    assert [f.pairs for f in found.features if f.pairs] == []
    short = window_of(profile, {"x": np.zeros((BATCH - 1, COLUMNS), "f4")})
    assert changed_pairs(profile, [short.joint]) == ()


def test_an_alarm_adds_up_the_windows_since_the_change_and_survives_a_restart():
    rng = np.random.default_rng(6)
    draw = autoregressive(rng, COLUMNS, 0.0)
    profile = fit(SCHEMA, {"x": draw(10_000)})
    monitor, window = Monitor(profile, SETTINGS), profile.accumulator()
    verdict = None
    for number in range(40):
        # Two batches a window: no single one is enough.
        x = draw(2 * BATCH)
        if number >= 4:
            x[:, 9] = 0.8 * x[:, 6] + 0.6 * x[:, 9]
        window.update({"x": x})
        verdict = monitor.update(window.take())
        if verdict.alarm:
            break
    assert verdict.alarm
    (culprit,) = verdict.culprits
    (pair,) = culprit.pairs
    assert (pair.first, pair.second) == ("x[6]", "x[9]")
    assert pair.current == pytest.approx(0.8, abs=0.1)
    restored = Monitor(profile, SETTINGS)
    data = b"".join(codec.packed("monitor", 1, monitor.state()))
    state = codec.unpacked(data, "monitor", 1)
    restored.resume(state)
    nothing = profile.accumulator().take()
    assert restored.update(nothing).culprits == verdict.culprits
    del state["pairs"]
    restored.resume(state)
    assert restored.update(nothing).culprits[0].pairs == ()
