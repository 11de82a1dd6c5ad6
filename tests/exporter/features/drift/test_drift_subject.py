"""References that fit and that do not, and such as are learnt."""

from __future__ import annotations

import os
from typing import get_args

import pytest
import structlog

from drift.features import Schema, Tensor
from drift.statistics import STATISTICS
from exporter import catalogue
from exporter.features.drift.drift_settings import StatisticName
from exporter.samples import Sample

ALARM = "triton_model_drift_alarm"


def test_every_statistic_of_the_library_can_be_asked_for():
    assert set(get_args(StatisticName)) == STATISTICS.keys()


WRONG = {
    "name": (
        {"X": ("FP32", (-1, 3)), "colour": ("BYTES", (-1, 1))},
        ["tensor 'x' is absent: the model has X, colour"],
    ),
    "datatype": (
        {"x": ("INT32", (-1, 3)), "colour": ("FP32", (-1, 1))},
        [
            "tensor 'x' is FP32 in the reference and INT32 in the model",
            "tensor 'colour' is BYTES in the reference and FP32 in the model",
        ],
    ),
    "width": (
        {"x": ("FP32", (-1, 4)), "colour": ("BYTES", (-1, 1))},
        [
            "tensor 'x' has rows of shape [3] in the reference and of shape [4] in the model",
        ],
    ),
    "open": (
        {"x": ("FP32", (-1, -1)), "colour": ("BYTES", (-1, 1))},
        [
            "tensor 'x' has rows of shape [3] in the reference and of open shape in the model",
        ],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_reference_that_does_not_fit_is_refused_and_the_rest_goes_on(
    bench, entry, spec_of, wrong
):
    inputs, differences = WRONG[wrong]
    bench.models(spec_of("m", inputs=inputs), spec_of("fine"))
    with structlog.testing.capture_logs() as logs:
        bench.watch(entry)
        bench.collect(after=1)
    assert bench.state("m") == "refused"
    assert bench.document("m")["problems"] == differences
    (told,) = [e for e in logs if e["event"] == "drift_reference_refused"]
    assert told["differences"] == "; ".join(differences)
    assert not bench.hub.wanted("m")
    assert bench.state("fine") == "watching"
    bench.window(bench.rows(200), model="fine")
    assert bench.value(ALARM, "fine") == 0
    assert bench.value(ALARM, "m") is None


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def newer(path):
    path.write_bytes(path.read_bytes().replace(b" profile ", b" profile 9", 1))


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def folder(path):
    path.unlink()
    path.mkdir()


BROKEN = [cut, newer, pipe, folder, lambda path: path.unlink()]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__)
def test_a_file_that_is_no_reference_is_refused_with_the_reason(bench, entry, broken):
    broken(entry["reference"])
    bench.watch(entry)
    assert bench.state() == "refused"
    (problem,) = bench.document()["problems"]
    assert len(problem) > 10


def test_a_reference_that_is_mended_is_taken_without_a_restart(bench, entry):
    good = entry["reference"].read_bytes()
    entry["reference"].write_bytes(b"nothing of ours")
    bench.watch(entry)
    assert bench.state() == "refused"
    entry["reference"].write_bytes(good)
    bench.window(bench.rows(10))
    assert bench.state() == "watching"
    assert bench.document()["problems"] == []


def test_a_new_reference_takes_the_place_of_the_old(bench, entry):
    bench.watch(entry)
    for _ in range(4):
        bench.window(bench.rows(300, shift=1.0))
    assert bench.value(ALARM, "m") == 1
    bench.profile(bench.rows(4000, shift=1.0))
    for _ in range(3):
        bench.window(bench.rows(300, shift=1.0))
    assert bench.value(ALARM, "m") == 0


def test_a_bad_new_reference_leaves_the_old_in_force(bench, entry):
    bench.watch(entry)
    entry["reference"].write_bytes(b"half of a copy")
    for _ in range(4):
        bench.window(bench.rows(300, shift=1.0))
    assert bench.state() == "watching"
    assert bench.value(ALARM, "m") == 1
    assert "not a tritonwatch-drift file" in bench.document()["problems"][0]


def test_a_model_that_comes_back_with_other_inputs_is_refused(bench, entry, spec_of):
    bench.watch(entry)
    bench.window(bench.rows(200))
    bench.models(spec_of(inputs={"z": ("FP32", (-1, 3))}, version="2"))
    bench.window(bench.rows(200))
    assert bench.state() == "refused"
    assert bench.value(ALARM, "m") is None
    bench.models(spec_of(version="3"))
    bench.window(bench.rows(200))
    assert bench.state() == "watching"


def test_a_new_version_with_the_same_inputs_changes_nothing(bench, entry, spec_of):
    bench.watch(entry)
    for _ in range(3):
        bench.window(bench.rows(200))
    bench.models(spec_of(version="2"))
    bench.window(bench.rows(200))
    assert bench.value("triton_drift_windows_total", "m", "inputs") == 4


def test_an_unloaded_model_shows_nothing_and_goes_on_when_it_is_back(
    bench, entry, spec_of
):
    bench.watch(entry)
    for _ in range(4):
        bench.window(bench.rows(300, shift=1.0))
    assert bench.value(ALARM, "m") == 1
    bench.models(spec_of("other"))
    bench.collect(after=5)
    assert {s.labels[0] for s in bench.samples} == {"other"}
    bench.models(spec_of("m"))
    bench.collect(after=5)
    assert bench.value(ALARM, "m") == 1
    assert {s.labels[0] for s in bench.samples} == {"m"}


def test_models_that_come_and_go_leave_room_for_others(bench, spec_of):
    bench.watch(LEARN)
    for generation in range(4):
        bench.models(*(spec_of(f"m{generation}-{i}") for i in range(90)))
        bench.collect(after=5)
        assert len(bench.all("triton_drift_state_info")) == 90


def test_a_model_nobody_has_seen_yet_waits(bench, entry):
    bench.models()
    bench.watch({**entry, "models": "late"})
    assert bench.samples == []
    assert not bench.hub.wanted("late")


def test_one_name_on_both_sides_of_a_model_is_refused(bench, entry, spec_of):
    bench.models(spec_of(outputs={"x": ("FP32", (-1, 3))}))
    schema = Schema.from_tensors([Tensor("x", "FP32", (3,))])
    answers = bench.profile({"x": bench.rows(2000)["x"]}, schema, "answers.json")
    bench.watch(entry, {**entry, "side": "outputs", "reference": answers})
    assert bench.state(side="inputs") == "watching"
    assert bench.state(side="outputs") == "refused"
    assert (
        "both the inputs and the outputs"
        in bench.document(side="outputs")["problems"][0]
    )


LEARN = {
    "learn": {"rows": 1000, "seconds": 60},
    "window": {"rows": 100, "seconds": 10},
}


def test_a_reference_is_learnt_from_live_traffic_and_then_watched(bench):
    bench.watch(LEARN)
    assert bench.state() == "learning"
    bench.window(bench.rows(1500), seconds=30)
    assert bench.state() == "learning", "enough rows, not enough time"
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1500
    bench.window(bench.rows(500), seconds=31)
    assert bench.state() == "watching"
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 2000
    assert bench.document()["reference"] == "live traffic of m"
    for _ in range(10):
        bench.window(bench.rows(300))
        assert bench.value(ALARM, "m") == 0
    for _ in range(4):
        bench.window(bench.rows(300, shift=0.8))
    assert bench.value("triton_feature_drift_alarm", "m", "x[1]") == 1


def test_what_does_not_fit_is_not_learnt(bench):
    bench.watch(LEARN)
    bench.send({"x": bench.rows(100)["x"]})
    bench.send({"x": bench.rows(100)["x"], "colour": bench.rows(50)["colour"]})
    bench.send({})
    wider = bench.rows(100)
    bench.send({**wider, "x": wider["x"].repeat(2, axis=1)})
    bench.send({**wider, "x": wider["colour"].repeat(3, axis=1)})
    bench.collect(after=1)
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 0
    bench.window(bench.rows(1000), seconds=61)
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1000


def test_features_can_be_named_over_tensors_and_columns(bench):
    bench.watch(
        {
            **LEARN,
            "features": [
                {"name": "age", "tensor": "x", "column": 2},
                {"name": "paint", "tensor": "colour"},
            ],
        }
    )
    bench.window(bench.rows(1200), seconds=61)
    bench.window(bench.rows(200))
    names = {s.labels[1] for s in bench.all("triton_feature_missing_ratio")}
    assert names == {"age", "paint"}
    assert bench.value("triton_feature_unseen_category_ratio", "m", "paint") == 0


def test_named_features_that_the_model_has_not_are_refused_with_their_names(bench):
    features = [
        {"name": "a", "tensor": "x", "column": 3},
        {"name": "b", "tensor": "nowhere"},
    ]
    bench.watch({**LEARN, "features": features})
    assert bench.state() == "refused"
    (problem,) = bench.document()["problems"]
    assert "column 3 of 'x', which has 3" in problem
    assert "'nowhere'" in problem


def test_a_model_of_open_shapes_alone_cannot_be_learnt(bench, spec_of):
    bench.models(spec_of(inputs={"text": ("BYTES", (-1, -1))}))
    bench.watch(LEARN)
    assert bench.state() == "refused"
    assert "text of open shape" in bench.document()["problems"][0]


def test_what_is_learnt_of_one_model_is_bounded(bench, spec_of):
    # 256 values as they are; what is more by sketches of 35 features a tensor.
    wide = {f"t{i}": ("FP32", (-1, 200)) for i in range(9)}
    bench.models(spec_of("wide", inputs=wide))
    bench.watch(LEARN)
    assert bench.state("wide") == "learning"
    tensors = {f"t{i}": ("FP32", (-1, 1)) for i in range(300)}
    bench.models(spec_of("many", inputs=tensors))
    bench.collect(after=1)
    assert bench.state("many") == "refused"
    assert "at most 512" in bench.document("many")["problems"][0]


def test_a_reference_that_is_still_learnt_is_lost_and_the_log_has_it(bench, tmp_path):
    entry = {**LEARN, "state": tmp_path / "state"}
    bench.watch(entry)
    bench.window(bench.rows(1200), seconds=30)
    with structlog.testing.capture_logs() as log:
        bench.collector.close()
        bench.watch(entry)
        bench.collector.close()
    lost = [line["rows"] for line in log if line["event"] == "drift_learning_lost"]
    assert lost == [1200]
    assert bench.state() == "learning"


def test_a_reload_keeps_what_an_unchanged_entry_has_learnt(bench, spec_of):
    bench.models(spec_of("m"), spec_of("n"))
    bench.watch(LEARN | {"models": "m"}, LEARN | {"models": "n"})
    for model in "mn":
        bench.window(bench.rows(900), seconds=15, model=model)
    with structlog.testing.capture_logs() as log:
        for rows in (1000, 1001):
            changed = {"models": "n", "learn": {"rows": rows, "seconds": 60}}
            entries = changed, LEARN | {"models": "m"}
            bench.watch(*entries, predecessor=bench.collector)
    assert [e["rows"] for e in log if e["event"] == "drift_learning_lost"] == [900]
    for model in "mn":
        bench.window(bench.rows(300), seconds=31, model=model)
    assert [bench.state(model) for model in "mn"] == ["watching", "learning"]
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 1200


def test_a_hundred_and_more_models_are_bounded(bench, spec_of):
    bench.models(*(spec_of(f"m{i}") for i in range(230)))
    with structlog.testing.capture_logs() as logs:
        bench.watch(LEARN)
        bench.collect(after=1)
    assert len(bench.all("triton_drift_state_info")) == 200
    assert [e["event"] for e in logs].count("drift_models_full") == 1


def test_estimated_accuracy_that_decays_gives_a_date_and_noise_gives_none(bench, entry):
    forecast = {"accuracy_floor": 0.8, "every_seconds": 100}
    bench.watch({**entry, "forecast": forecast})
    for step in range(60):
        bench.exposed = accuracy_of(
            "m", 0.95 - 0.001 * step + bench.rng.normal(0, 1e-3)
        )
        bench.collect(after=100)
    lower, median, upper = (
        bench.value("triton_retrain_eta_seconds", "m", bound)
        for bound in ("lower", "median", "upper")
    )
    # 0.95 - 0.06 = 0.89 is left 0.09 above the floor: 90 steps of 100 s.
    assert lower <= median <= upper
    assert 7000 < median < 11000
    worth = bench.value("triton_retrain_eta_effective_periods", "m")
    assert 10 < worth <= 60
    assert bench.document()["retrain"]["seconds"]["effective_periods"] == worth
    assert bench.document()["retrain"]["outlooks"] == {"accuracy": "decay"}
    bench.collector.close()
    bench.watch({**entry, "forecast": forecast})
    for _ in range(60):
        bench.exposed = accuracy_of("m", 0.95 + bench.rng.normal(0, 0.003))
        bench.collect(after=100)
    assert bench.all("triton_retrain_eta_seconds") == []
    assert bench.document()["retrain"]["outlooks"] == {"accuracy": "flat"}


def accuracy_of(model, value):
    return [Sample(catalogue.ESTIMATED_ACCURACY, value, (model, "1"))]
