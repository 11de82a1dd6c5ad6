"""Versions of one model with different signatures, as in a roll-out and a rollback."""

from __future__ import annotations

import numpy as np
import pytest
import structlog

ALARM = "triton_model_drift_alarm"
WIDER = {"x": ("FP32", (-1, 4)), "colour": ("BYTES", (-1, 1))}
LEARN = {
    "learn": {"rows": 1000, "seconds": 60},
    "window": {"rows": 100, "seconds": 10},
}


def drifted(bench, number=4, **request):
    for _ in range(number):
        bench.window(bench.rows(300, shift=0.8), **request)


def wider(bench, rows=100):
    return {
        "x": np.ones((rows, 4), np.float32),
        "colour": bench.rows(rows)["colour"],
    }


def begun(bench, entry):
    """Watch the model, learnt or not, and let its data drift."""
    bench.watch(entry)
    if "learn" in entry:
        bench.window(bench.rows(1200), seconds=61)
    drifted(bench)
    assert bench.value(ALARM, "m") == 1


@pytest.fixture(params=["file", "learnt"])
def either(request, entry):
    return entry if request.param == "file" else LEARN


def test_the_version_that_still_serves_is_watched_beside_one_of_another_signature(
    bench, either, spec_of
):
    begun(bench, either)
    bench.models(spec_of(), spec_of(version="2", inputs=WIDER))
    with structlog.testing.capture_logs() as logs:
        drifted(bench, 3, version="1")
    assert bench.state() == "watching"
    assert bench.value(ALARM, "m") == 1
    (problem,) = bench.document()["problems"]
    assert problem.startswith("version 2 is not watched: tensor 'x' has rows of shape")
    events = [e for e in logs if e["event"] == "drift_versions_not_watched"]
    assert len(events) == 1
    bench.models(spec_of())
    bench.collect(after=1)
    assert bench.document()["problems"] == []


@pytest.mark.parametrize("version", ["2", ""])
def test_requests_of_a_version_that_is_not_watched_are_not_counted(
    bench, entry, spec_of, version
):
    bench.watch(entry)
    bench.models(spec_of(), spec_of(version="2", inputs=WIDER))
    bench.collect(after=1)
    for _ in range(4):
        bench.send(bench.rows(200), version="1")
        # Without a version the server takes the latest.
        bench.window(wider(bench), version=version)
    assert bench.value("triton_drift_rows_total", "m", "inputs") == 800
    assert bench.violations() == {}
    assert bench.value(ALARM, "m") == 0


def test_after_a_rollback_the_evidence_continues(bench, either, spec_of):
    begun(bench, either)
    bench.models(spec_of(version="2", inputs=WIDER))
    bench.window(wider(bench))
    assert bench.state() == ("learning" if either is LEARN else "refused")
    assert bench.value(ALARM, "m") is None
    bench.models(spec_of())
    bench.collect(after=1)
    assert bench.state() == "watching"
    assert bench.value(ALARM, "m") == 1
    drifted(bench, 3)
    assert bench.value(ALARM, "m") == 1


@pytest.mark.parametrize("is_learnt", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_learnt_reference_is_used_again_when_its_signature_returns(
    bench, tmp_path, spec_of, is_learnt, restarts
):
    entry = {**LEARN, "state": tmp_path / "state"} if restarts else LEARN
    begun(bench, entry)
    bench.models(spec_of(version="2", inputs=WIDER))
    bench.collect(after=1)
    if is_learnt:
        bench.window(wider(bench, 1100), seconds=61)
        assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1100
    if restarts:
        bench.collector.close()
        bench.watch(entry)
    bench.models(spec_of())
    bench.collect(after=1)
    assert bench.state() == "watching"
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1200
    drifted(bench)
    assert bench.value(ALARM, "m") == 1
    if is_learnt:
        bench.models(spec_of(version="2", inputs=WIDER))
        bench.collect(after=1)
        assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1100


def test_learning_continues_beside_a_version_of_another_signature(bench, spec_of):
    bench.watch(LEARN)
    bench.window(bench.rows(900), seconds=30)
    bench.models(spec_of(), spec_of(version="2", inputs=WIDER))
    bench.collect(after=1)
    bench.send(wider(bench), version="2")
    bench.send(bench.rows(200), version="1")
    bench.collect(after=31)
    assert bench.state() == "watching"
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1100


@pytest.mark.parametrize(
    "inputs", [WIDER, {"text": ("BYTES", (-1, -1))}], ids=["learnt anew", "refused"]
)
def test_rows_that_were_learnt_of_a_signature_that_is_gone_are_reported_as_lost(
    bench, spec_of, inputs
):
    bench.watch(LEARN)
    bench.window(bench.rows(900), seconds=30)
    bench.models(spec_of(inputs=inputs))
    with structlog.testing.capture_logs() as logs:
        bench.collect(after=1)
        bench.collector.close()
    assert [e["rows"] for e in logs if e["event"] == "drift_learning_lost"] == [900]


def test_learning_that_a_rollback_ends_is_reported_as_lost(bench, spec_of):
    bench.watch(LEARN)
    bench.window(bench.rows(1200), seconds=61)
    bench.models(spec_of(version="2", inputs=WIDER))
    bench.collect(after=1)
    bench.window(wider(bench))
    bench.models(spec_of())
    with structlog.testing.capture_logs() as logs:
        bench.collect(after=1)
    assert bench.state() == "watching"
    assert [e["rows"] for e in logs if e["event"] == "drift_learning_lost"] == [100]


def test_learning_continues_after_a_state_folder_that_cannot_be_read(
    bench, spec_of, tmp_path
):
    bench.watch({**LEARN, "state": tmp_path})
    bench.window(bench.rows(900), seconds=30)
    file = tmp_path / "m.inputs.profile"
    file.symlink_to(file)
    bench.models(spec_of(), spec_of(version="2"))
    bench.collect(after=1)
    assert bench.state() == "learning"
    file.unlink()
    bench.window(bench.rows(300), seconds=31)
    assert bench.state() == "watching"
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1200


def written_at(folder, what):
    return (folder / f"m.inputs.{what}").stat().st_mtime_ns


def test_a_state_of_the_reference_before_is_replaced_without_a_warning(
    bench, tmp_path, spec_of
):
    entry = {**LEARN, "state": tmp_path}
    begun(bench, entry)
    with structlog.testing.capture_logs() as logs:
        bench.collector.close()
        bench.watch(entry)
        bench.models(spec_of(version="2", inputs=WIDER))
        bench.collect(after=1)
        bench.window(wider(bench, 1100), seconds=61)
        bench.collector.close()
        bench.watch(entry)
        bench.models(spec_of())
        bench.collect(after=1)
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1200
    # What was found before the restart is of the other reference.
    assert bench.value(ALARM, "m") is None
    assert [line for line in logs if line["event"] == "drift_state_set_aside"] == []


def test_the_reference_that_serves_is_on_the_disk_at_every_moment(
    bench, tmp_path, spec_of
):
    """Files are replaced one after the other: first that which has no other copy."""
    begun(bench, {**LEARN, "state": tmp_path})
    bench.models(spec_of(version="2", inputs=WIDER))
    bench.collect(after=1)
    bench.window(wider(bench, 1100), seconds=61)
    assert written_at(tmp_path, "former-profile") <= written_at(tmp_path, "profile")
    bench.models(spec_of())
    bench.collect(after=1)
    assert written_at(tmp_path, "profile") <= written_at(tmp_path, "former-profile")
