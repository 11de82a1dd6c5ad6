"""Mirrored answers: what they look like, and how many are right."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from accesses import access_to
from clocks import Clock

from drift.numerics.answer_distribution import shape_of
from drift.numerics.confidence_calibration import calibrate
from exporter import catalogue
from exporter.access.calibration_board import Calibrated
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.mirror_hub import Mirrored
from exporter.features.outputs.outputs_settings import OutputsSettings
from exporter.samples import Sample
from exporter.triton.protocol_types import ModelSpec, TensorSpec

KEY = ("m", "2")


@pytest.fixture
def scene():
    board = InventoryBoard()
    spec = ModelSpec(*KEY, (), (TensorSpec("p", "FP32", (-1, 3)),), 8)
    single = ModelSpec("s", "1", (), (TensorSpec("p", "FP32", (3,)),), 0)
    board.publish(Inventory(models={KEY: spec, ("m", "1"): spec, ("s", "1"): single}))
    exposed = []
    access = access_to(
        SimpleNamespace(), board=board, clock=Clock(), exposed=lambda: exposed
    )
    collector = OutputsSettings(window_rows=200).build(access)
    return SimpleNamespace(access=access, collector=collector, exposed=exposed)


def answers(rng, rows, sure=0.8):
    """Rows of three probabilities, the largest about `sure`."""
    best = np.clip(rng.normal(sure, 0.05, rows), 0.4, 0.99)
    scores = np.stack([best, (1 - best) * 0.6, (1 - best) * 0.4], axis=1)
    return rng.permuted(scores, axis=1)


def publish(scene, outputs, *, model="m", version="", name="p", **inputs):
    scene.access.mirror.publish(
        [Mirrored("http", model, version, "1", inputs, {name: outputs})]
    )


def calibrate_it(scene, rows=3000, dataset="set", lost=0.1):
    """A golden set whose answers are right less often than they say, by `lost`."""
    rng = np.random.default_rng(30)
    said = answers(rng, rows).max(axis=1)
    calibration = calibrate(said, (rng.random(rows) < said - lost).astype(float))
    scene.access.calibration.publish(KEY, Calibrated("p", dataset, calibration))


def width(scene):
    low, high = (
        value(scene, "triton_estimated_accuracy_ci_ratio", bound)
        for bound in ("lower", "upper")
    )
    return high - low


def valid(scene, condition):
    return value(scene, "triton_estimated_accuracy_valid", condition)


def value(scene, name, *labels):
    found = [
        s.value
        for s in scene.collector.collect()
        if s.spec.name == name and set(labels) <= set(s.labels)
    ]
    assert len(found) < 2, found
    return found[0] if found else None


def test_the_latest_rows_of_the_latest_version_are_looked_at(scene) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        publish(scene, answers(rng, 8, sure=0.5))
    rows = answers(rng, 200, sure=0.9)
    for part in np.array_split(rows, 31):
        publish(scene, part)
    assert value(scene, "triton_output_rows_total") == 280
    confidence = value(scene, "triton_output_confidence_ratio", "production", "2")
    assert confidence == pytest.approx(rows.max(axis=1).mean())
    share = value(scene, "triton_output_class_ratio", "0")
    assert share == pytest.approx((rows.argmax(axis=1) == 0).mean())


def test_a_few_rows_say_nothing_yet(scene) -> None:
    publish(scene, answers(np.random.default_rng(1), 8))
    assert value(scene, "triton_output_rows_total") == 8
    assert value(scene, "triton_output_confidence_ratio") is None


def test_answers_of_long_ago_say_nothing_of_the_present(scene) -> None:
    publish(scene, answers(np.random.default_rng(1), 60))
    scene.access.clock.now += 3600
    assert value(scene, "triton_output_confidence_ratio") is not None
    scene.access.clock.now += 1
    assert value(scene, "triton_output_confidence_ratio") is None
    assert value(scene, "triton_output_rows_total") == 60
    publish(scene, answers(np.random.default_rng(1), 1))
    assert value(scene, "triton_output_confidence_ratio") is not None


def test_a_model_with_other_outputs_is_looked_at_anew(scene) -> None:
    publish(scene, answers(np.random.default_rng(1), 60))
    other = ModelSpec(*KEY, (), (TensorSpec("p", "FP32", (-1, 2)),), 8)
    scene.access.board.publish(Inventory(models={KEY: other}))
    publish(scene, np.full((8, 2), 0.5))
    assert value(scene, "triton_output_confidence_ratio") is None


def test_a_model_without_batches_answers_a_row_at_a_time(scene) -> None:
    for row in answers(np.random.default_rng(2), 60):
        publish(scene, row, model="s")
    assert value(scene, "triton_output_rows_total", "s") == 60
    assert value(scene, "triton_output_confidence_ratio", "s") is not None


def test_what_nobody_serves_or_answers_is_passed_over(scene) -> None:
    publish(scene, np.zeros((4, 3)), model="unknown")
    publish(scene, np.zeros((4, 3)), version="9")
    publish(scene, np.zeros((0, 3)))
    scene.access.mirror.publish([Mirrored("http", "m", "", "1")])
    assert value(scene, "triton_output_rows_total") is None


@pytest.mark.parametrize("kind", ["sigmoid", "logits"])
def test_answers_are_read_like_the_golden_ones(scene, kind) -> None:
    """The golden probe knows from its labels that the output has classes."""
    width = 1 if kind == "sigmoid" else 3

    def made(rng, rows):
        scores = rng.normal(0, 3, (rows, width))
        return 1 / (1 + np.exp(-scores)) if kind == "sigmoid" else scores

    rng = np.random.default_rng(8)
    golden = shape_of(made(rng, 3000), classes=True)
    right = (rng.random(3000) < golden.confidence).astype(float)
    found = calibrate(golden.confidence, right)
    scene.access.calibration.publish(
        KEY, Calibrated("p", "set", found, kind == "logits")
    )
    for _ in range(200):
        publish(scene, made(rng, 1))
    estimate = value(scene, "triton_estimated_accuracy_ratio")
    assert estimate == pytest.approx(right.mean(), abs=0.05)


def test_answers_without_classes_estimate_no_accuracy(scene) -> None:
    calibrate_it(scene)
    rng = np.random.default_rng(8)
    for _ in range(60):
        publish(scene, rng.normal(0, 3, (4, 3)), name="q")
    scene.collector.close()
    assert value(scene, "triton_estimated_accuracy_ratio") is None


def test_rows_of_a_model_without_batches_whose_first_dimension_is_free(scene) -> None:
    spec = ModelSpec("free", "1", (), (TensorSpec("p", "FP32", (-1, 3)),), 0)
    scene.access.board.publish(Inventory(models={spec.key: spec}))
    publish(scene, answers(np.random.default_rng(2), 60), model="free")
    assert value(scene, "triton_output_rows_total", "free") == 60


def test_accuracy_is_estimated_once_the_model_is_calibrated(scene) -> None:
    rng = np.random.default_rng(3)
    rows = answers(rng, 200)
    publish(scene, rows)
    assert value(scene, "triton_estimated_accuracy_ratio") is None
    calibrate_it(scene)
    estimate = value(scene, "triton_estimated_accuracy_ratio")
    assert estimate == pytest.approx(rows.max(axis=1).mean() - 0.1, abs=0.04)
    low, high = (
        value(scene, "triton_estimated_accuracy_ci_ratio", bound)
        for bound in ("lower", "upper")
    )
    assert low < estimate < high
    assert value(scene, "triton_estimated_accuracy_effective_samples") == 200
    conditions = ("calibrated", "enough_outputs", "within_calibration")
    assert [valid(scene, name) for name in conditions] == [1, 1, 1]


def test_no_drift_is_unknown_unless_somebody_watches_the_inputs(scene) -> None:
    publish(scene, answers(np.random.default_rng(3), 200))
    calibrate_it(scene)
    # Outputs are watched as well, and a profile that was not yet compared with any window.
    scene.exposed += [
        Sample(catalogue.MODEL_DRIFT_ALARM, 0, ("m",)),
        Sample(catalogue.DRIFT_WINDOW_TIMESTAMP, 5.0, ("m", "outputs")),
        Sample(catalogue.DRIFT_PROMISE, 1, ("m", "outputs")),
        Sample(catalogue.DRIFT_WINDOW_TIMESTAMP, 5.0, ("other", "inputs")),
    ]
    assert valid(scene, "drift_watched") == 0
    assert valid(scene, "no_drift") is None
    assert valid(scene, "drift_guaranteed") is None
    scene.exposed.append(Sample(catalogue.DRIFT_WINDOW_TIMESTAMP, 5.0, ("m", "inputs")))
    assert valid(scene, "drift_watched") == 1
    assert valid(scene, "no_drift") == 1
    scene.exposed[0] = Sample(catalogue.MODEL_DRIFT_ALARM, 1, ("m",))
    assert valid(scene, "no_drift") == 0


@pytest.mark.parametrize("kept", [0, 1])
def test_a_drift_reference_without_its_guarantee_makes_the_estimate_doubtful(
    scene, kept
) -> None:
    publish(scene, answers(np.random.default_rng(3), 200))
    calibrate_it(scene)
    scene.exposed += [
        Sample(catalogue.DRIFT_WINDOW_TIMESTAMP, 5.0, ("m", "inputs")),
        Sample(catalogue.DRIFT_PROMISE, kept, ("m", "inputs")),
    ]
    assert valid(scene, "drift_guaranteed") == kept


def test_a_repeated_request_counts_once(scene) -> None:
    rng = np.random.default_rng(4)
    calibrate_it(scene)
    rows = answers(rng, 200)
    publish(scene, rows)
    different = width(scene)
    for part in np.array_split(rows[:10], 5):
        for _ in range(20):
            publish(scene, part)
    assert width(scene) > 2 * different
    assert valid(scene, "enough_outputs") == 0


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_equal_answers_to_different_inputs_do_not_count_as_one(scene, kind) -> None:
    calibrate_it(scene)
    rows = np.repeat(answers(np.random.default_rng(5), 1), 200, axis=0)
    asked = np.arange(200.0)[:, None]
    if kind == "texts":
        asked = np.array([[f"text {n}".encode()] for n in range(200)], object)
    publish(scene, rows, x=asked)
    assert valid(scene, "enough_outputs") == 1
    publish(scene, rows, x=asked[[0] * 200].copy())
    assert valid(scene, "enough_outputs") == 0


def test_a_golden_set_that_lost_accuracy_contradicts_the_estimate(scene) -> None:
    publish(scene, answers(np.random.default_rng(6), 200))
    calibrate_it(scene)
    assert valid(scene, "golden_agrees") is None
    labels = (*KEY, "set", "labels")
    scene.exposed.append(Sample(catalogue.GOLDEN_FAILING, 0, labels))
    assert valid(scene, "golden_agrees") == 1
    scene.exposed[0] = Sample(catalogue.GOLDEN_FAILING, 1, labels)
    assert valid(scene, "golden_agrees") == 0


@pytest.mark.parametrize(("lost", "agrees"), [(0.1, 1), (0.4, 0)])
def test_fresh_labels_that_contradict_the_calibration_are_seen(
    scene, lost, agrees
) -> None:
    """A small set with labels of today beside the large one of long ago."""
    publish(scene, answers(np.random.default_rng(7), 200))
    calibrate_it(scene)
    calibrate_it(scene, rows=200, dataset="fresh", lost=lost)
    assert valid(scene, "golden_agrees") == agrees


def test_it_says_where_it_is_shown_what_it_cannot_see() -> None:
    for spec in (catalogue.ESTIMATED_ACCURACY, catalogue.ESTIMATED_ACCURACY_VALID):
        assert "Blind to concept drift" in spec.help


def test_after_the_end_nothing_is_taken(scene) -> None:
    scene.collector.close()
    publish(scene, np.zeros((200, 3)))
    assert value(scene, "triton_output_rows_total") is None


def test_a_model_that_goes_is_forgotten(scene) -> None:
    publish(scene, answers(np.random.default_rng(1), 80))
    scene.access.board.publish(Inventory())
    assert value(scene, "triton_output_rows_total") is None
