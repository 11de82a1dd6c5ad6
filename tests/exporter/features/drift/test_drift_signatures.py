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
