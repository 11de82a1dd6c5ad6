"""Changes of the correlation between columns that no column shows by itself."""

from __future__ import annotations

import numpy as np
import pytest
from dependent_rows import DEPENDENT, correlated
from drifting_data import window_of

from drift.alarms.monitor import AlarmSettings, Monitor
from drift.errors import SchemaError, StateError
from drift.features import JOINT as NAME
from drift.features import Feature, Schema, Tensor
from drift.fitting import ProfileBuilder, fit
from drift.joint import BATCH
from drift.joint_fitting import MIN_BATCHES
from drift.judgement import judge
from drift.reference import FIRST_VERSION, JOINT_VERSION, Profile
from drift.report.words import headline, kind_of_change, sizes

COLUMNS = 20
SCHEMA = Schema.from_tensors([Tensor("x", "FP32", (COLUMNS,))])
MIXED = Schema(
    (Tensor("x", "FP32", (3,)), Tensor("c", "BYTES", (1,))),
    (
        *(Feature(f"x{i}", "x", i) for i in range(3)),
        Feature("c", "c", 0, "categorical"),
    ),
)
SETTINGS = AlarmSettings(windows_per_false_alarm=1000)
CHANGES = [(0.0, 0.95), (0.5, 0.9), (0.9, -0.9), (0.95, 0.0)]


def table(rng, rows, correlation):
    return {"x": correlated(rng, rows, COLUMNS, correlation)}


def named(judgement):
    return [feature.name for feature in judgement.changed]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_another_correlation_of_two_in_twenty_columns_is_drift(before, after):
    rng = np.random.default_rng(1)
    profile = fit(SCHEMA, table(rng, 10_000, before), ordered=False)
    found = judge(profile, window_of(profile, table(rng, 2000, after)))
    assert headline(found) == "Drift in the correlations between 20 features."
    assert named(found) == [NAME]
    assert kind_of_change(found.changed[0]) == "correlations between columns changed"
    assert any(line.startswith("unusual batches 6") for line in sizes(found.changed[0]))


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_it_alarms_within_two_windows_of_500_rows(before, after):
    rng = np.random.default_rng(2)
    profile = fit(SCHEMA, table(rng, 10_000, before))
    monitor, window = Monitor(profile, SETTINGS), profile.accumulator()

    def verdict(correlation):
        window.update(table(rng, 500, correlation))
        return monitor.update(window.take())

    assert not any(verdict(before).alarm for _ in range(5))
    alarm = [verdict(after) for _ in range(2)][-1]
    assert alarm.alarm
    assert [culprit.feature for culprit in alarm.culprits] == [NAME]


@pytest.mark.parametrize("kind", sorted(DEPENDENT))
def test_clean_dependent_rows_raise_no_more_alarms_than_wanted(kind):
    rng = np.random.default_rng(list(kind.encode()))
    raised = 0
    for _ in range(3):
        draw = DEPENDENT[kind](rng, 12)
        profile = fit(SCHEMA_12, {"x": draw(20_000)})
        monitor, window = Monitor(profile, SETTINGS), profile.accumulator()
        for _ in range(100):
            window.update({"x": draw(500)})
            raised += monitor.update(window.take()).raised
    # 300 windows at 1 in 1,000: 4 or more has chance 3e-4 (binomial).
    assert raised <= 3


SCHEMA_12 = Schema.from_tensors([Tensor("x", "FP32", (12,))])


@pytest.mark.parametrize("change", ["shift", "scale"])
def test_a_change_of_one_column_alone_does_not_name_the_joint_feature(change):
    rng = np.random.default_rng(4)
    profile = fit(SCHEMA, table(rng, 10_000, 0.5))
    rows = table(rng, 2000, 0.5)
    rows["x"][:, 3] = rows["x"][:, 3] * (1.4 if change == "scale" else 1.0) + 0.5
    assert named(judge(profile, window_of(profile, rows))) == ["x[3]"]


def awkward(rng, rows):
    x = rng.normal(size=(rows, 9))
    x[:, 1] = 3.0
    x[:, 2] = x[:, 0]
    x[:, 3] = np.nan
    x[:, 4] = rng.standard_cauchy(rows) * 1e30
    x[:, 5] = rng.random(rows) < 0.002
    x[rng.random(rows) < 0.3, 6] = np.nan
    x[rng.random(rows) < 0.1, 7] = np.inf
    return {"x": x.astype(np.float32)}


AWKWARD = Schema.from_tensors([Tensor("x", "FP32", (9,))])


def test_singular_constant_missing_and_heavy_tailed_columns_are_no_change():
    rng = np.random.default_rng(5)
    profile = fit(AWKWARD, awkward(rng, 10_000))
    assert profile.joint is not None
    assert judge(profile, window_of(profile, awkward(rng, 4000))).outcome == "no_drift"
    rows = awkward(rng, 4000)
    rows["x"][:, 2] = rng.permutation(rows["x"][:, 2])
    assert named(judge(profile, window_of(profile, rows))) == [NAME]


def test_requests_of_any_size_give_the_same_counts():
    rng = np.random.default_rng(6)
    profile = fit(SCHEMA, table(rng, 5000, 0.3))
    rows = table(rng, 9000, 0.3)["x"]
    whole = window_of(profile, {"x": rows})
    parts = profile.accumulator()
    for part in np.split(rows, np.sort(rng.integers(0, 9000, 400))):
        parts.update({"x": part})
        if rng.random() < 0.1:
            parts.peek()
    assert np.array_equal(parts.take().cells, whole.cells)


def test_texts_stand_beside_the_numbers_of_their_row():
    rng = np.random.default_rng(7)

    def of(rows):
        x = rng.normal(size=(rows, 3)).astype(np.float32)
        names = np.array([b"low", b"high"], object)
        return {"x": x, "c": names[(x[:, 0] > 0).astype(int)][:, None]}

    profile = fit(MIXED, of(8000))
    window = profile.accumulator()
    for _ in range(900):
        window.update(of(int(rng.integers(1, 7))))
    assert judge(profile, window.take()).outcome == "no_drift"


def test_of_a_long_window_whole_batches_are_left_out():
    rng = np.random.default_rng(8)
    profile = fit(SCHEMA, table(rng, 5000, 0.3))
    window = window_of(profile, table(rng, 100_000, 0.3))
    batches = int(window.cells[-1].sum())
    assert 20 <= batches <= 40
    assert window.cells[:-1].sum(axis=1).tolist() == [100_000] * COLUMNS


def test_rows_too_few_for_a_batch_wait_for_the_next_window():
    rng = np.random.default_rng(9)
    profile = fit(SCHEMA, table(rng, 5000, 0.3))
    window = profile.accumulator()
    found = []
    for _ in range(4):
        window.update(table(rng, BATCH // 2, 0.3))
        found.append(int(window.take().cells[-1].sum()))
    assert found == [0, 1, 0, 1]


def test_rows_that_wait_for_a_batch_survive_a_restart():
    rng = np.random.default_rng(16)
    profile = fit(SCHEMA, table(rng, 5000, 0.3))
    first, second = profile.accumulator(), profile.accumulator()
    first.update(table(rng, BATCH // 2, 0.3))
    first.peek()
    second.restore_batch(first.batch())
    second.update(table(rng, BATCH // 2, 0.3))
    assert second.take().cells[-1].sum() == 1


def test_few_rows_are_no_basis_and_the_reference_says_so():
    rng = np.random.default_rng(10)
    short = fit(SCHEMA, table(rng, MIN_BATCHES * BATCH - 1, 0.0))
    assert short.joint is None
    told = (
        f"has {MIN_BATCHES * BATCH - 1} rows; at least {MIN_BATCHES * BATCH} are needed"
    )
    assert told in " ".join(short.blind_spots)
    assert NAME not in short.names


def test_too_many_columns_are_refused_with_the_reason():
    rng = np.random.default_rng(11)
    schema = Schema.from_tensors([Tensor("x", "FP32", (300,))])
    wide = fit(schema, {"x": rng.normal(size=(3000, 300)).astype(np.float32)})
    assert wide.joint is None
    assert "the rows have 300" in " ".join(wide.blind_spots)


def test_a_single_column_has_no_correlation_and_nothing_is_said():
    rng = np.random.default_rng(12)
    schema = Schema.from_tensors([Tensor("x", "FP32", (1,))])
    one = fit(schema, {"x": rng.normal(size=(5000, 1)).astype(np.float32)})
    assert one.joint is None
    assert one.blind_spots == ()


def test_a_profile_keeps_it_and_one_without_says_that_it_lacks_it():
    rng = np.random.default_rng(13)
    profile = fit(SCHEMA, table(rng, 5000, 0.5))
    data = profile.to_bytes()
    again = Profile.from_bytes(data)
    assert data.split(b" ")[2] == str(JOINT_VERSION).encode()
    assert again.to_bytes() == data
    rows = table(rng, 4000, -0.5)
    assert np.array_equal(window_of(again, rows).cells, window_of(profile, rows).cells)
    old = Profile.from_bytes(without_joint(data))
    assert old.joint is None
    assert "made before" in " ".join(old.blind_spots)
    assert named(judge(again, window_of(again, rows))) == [NAME]
    assert judge(old, window_of(old, rows)).outcome == "no_drift"


def without_joint(data):
    """The profile as an earlier program wrote it."""
    from drift import codec  # noqa: PLC0415

    payload = codec.decode(data, "profile", JOINT_VERSION)
    del payload["joint"]
    payload["categories"].pop()
    payload["cells"].pop()
    for name in ("location", "scale", "shape", "events", "growth", "unit_rows"):
        payload["dispersion"][name].pop()
    return codec.encode("profile", FIRST_VERSION, payload)


@pytest.mark.parametrize(
    "damage",
    [
        lambda joint: joint.update(mean="AAAA"),
        lambda joint: joint.update(limit=None),
        lambda joint: joint.update(used=[99]),
        lambda joint: joint.update(codes=[[0.0]]),
    ],
)
def test_a_damaged_one_is_a_profile_that_cannot_be_read(damage):
    from drift import codec  # noqa: PLC0415

    data = fit(SCHEMA, table(np.random.default_rng(14), 5000, 0.5)).to_bytes()
    payload = codec.decode(data, "profile", JOINT_VERSION)
    damage(payload["joint"])
    with pytest.raises(StateError):
        Profile.from_bytes(codec.encode("profile", JOINT_VERSION, payload))


def test_its_name_is_taken():
    with pytest.raises(SchemaError, match="joint"):
        Schema((Tensor("x"),), (Feature(NAME, "x"),))


def test_chunks_of_a_reference_make_the_same_profile():
    rows = table(np.random.default_rng(15), 6000, 0.4)["x"]
    builder = ProfileBuilder(SCHEMA)
    for start in range(0, 6000, 37):
        builder.add({"x": rows[start : start + 37]})
    assert builder.build().fingerprint == fit(SCHEMA, {"x": rows}).fingerprint
