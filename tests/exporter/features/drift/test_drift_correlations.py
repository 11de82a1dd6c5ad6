"""Correlations between the columns of a model's data, with default settings."""

from __future__ import annotations

import pytest
from dependent_rows import correlated
from structlog.testing import capture_logs

from drift.features import Schema, Tensor

ANSWERS = Schema.from_tensors([Tensor("y", "FP32", (2,))])


@pytest.fixture
def log():
    with capture_logs() as entries:
        yield entries


def inputs(bench, rows, correlation):
    return bench.rows(rows) | {"x": correlated(bench.rng, rows, 3, correlation)}


def outputs(bench, rows, correlation):
    return {"y": correlated(bench.rng, rows, 2, correlation)}


def test_a_change_of_correlation_alone_is_an_alarm_on_the_joint_feature(bench, log):
    bench.watch({"reference": bench.profile(inputs(bench, 10_000, 0.0))})
    for _ in range(4):
        bench.window(inputs(bench, 500, 0.0), seconds=600)
    assert bench.value("triton_model_drift_alarm", "m") == 0
    assert bench.value("triton_drift_promise_kept", "m", "inputs") == 1
    for _ in range(3):
        bench.window(inputs(bench, 500, 0.95), seconds=600)
    assert bench.value("triton_model_drift_alarm", "m") == 1
    alarms = {s.labels: s.value for s in bench.all("triton_feature_drift_alarm")}
    assert [labels for labels, value in alarms.items() if value] == [("m", "(joint)")]
    psi = bench.value("triton_feature_drift_score", "m", "(joint)", "psi")
    upper = bench.value("triton_feature_drift_null", "m", "(joint)", "psi", "upper")
    assert psi > upper > 0
    assert bench.value("triton_feature_missing_ratio", "m", "(joint)") is None
    (change,) = bench.document()["changes"]
    assert change["says"].startswith("(joint): correlations between columns differ")
    (pair,) = change["pairs"]
    assert pair["columns"] == ["x[0]", "x[1]"]
    assert pair["before"] == pytest.approx(0.0, abs=0.05)
    assert pair["since"] == pytest.approx(0.95, abs=0.02)
    told = f"x[0] and x[1]: correlation {pair['before']:.2f} -> {pair['since']:.2f}"
    assert change["says"].endswith(told)
    (event,) = (entry for entry in log if entry["event"] == "drift_alarm")
    assert event["correlations"].startswith("x[0] and x[1]: correlation ")


def test_each_side_of_a_model_has_a_joint_feature_of_its_own(bench):
    answers = bench.profile(outputs(bench, 10_000, 0.5), ANSWERS, "answers.json")
    bench.watch(
        {"reference": bench.profile(inputs(bench, 10_000, 0.0))},
        {"side": "outputs", "reference": answers},
    )
    for correlation in (0.5, -0.5, -0.5, -0.5):
        bench.window(
            inputs(bench, 500, 0.0),
            outputs=outputs(bench, 500, correlation),
            seconds=600,
        )
    assert bench.state(side="outputs") == bench.state() == "watching"
    alarms = {s.labels[1]: s.value for s in bench.all("triton_feature_drift_alarm")}
    assert alarms["(joint)"] == 0
    assert alarms["(joint outputs)"] == 1


def test_a_learnt_reference_has_it_too(bench):
    bench.watch({"learn": {"rows": 5000, "seconds": 60}})
    for _ in range(10):
        bench.window(inputs(bench, 500, 0.5), seconds=10)
    assert bench.state() == "watching"
    for _ in range(4):
        bench.window(inputs(bench, 500, -0.5), seconds=600)
    assert bench.value("triton_feature_drift_alarm", "m", "(joint)") == 1


def test_the_forecast_follows_the_psi_of_columns(bench):
    bench.watch(
        {
            "reference": bench.profile(inputs(bench, 10_000, 0.0)),
            "forecast": {"psi_limit": 1.0, "every_seconds": 600},
        }
    )
    for _ in range(28):
        bench.window(inputs(bench, 500, 0.95), seconds=600)
    assert bench.value("triton_feature_drift_score", "m", "(joint)", "psi") > 1.0
    outlooks = bench.document()["retrain"]["outlooks"]
    assert outlooks.keys() == {"psi"}
    assert outlooks["psi"] not in {"too_short", "below"}
