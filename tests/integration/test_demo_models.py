"""The demo models on the real server: as accurate as their record says."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import np_to_triton_dtype
from waiting import patience

MODELS = Path(__file__).parents[2] / "deploy" / "models"
RIGHT = {"digits_fp32": 436, "digits_int8": 436, "diabetes": 63}
"""Of the held-out rows, as deploy/models/README.md has them."""


def arrays(path):
    with np.load(MODELS / path) as data:
        return dict(data)


@pytest.fixture(scope="module")
def client(triton):
    with triton_grpc.InferenceServerClient(triton.grpc) as made:
        yield made


def tensors(inputs):
    made = []
    for name, array in inputs.items():
        datatype = np_to_triton_dtype(array.dtype)
        made.append(triton_grpc.InferInput(name, list(array.shape), datatype))
        made[-1].set_data_from_numpy(array)
    return made


def infer(client, model, inputs, **parameters):
    return client.infer(
        model, tensors(inputs), parameters=parameters, client_timeout=patience(20)
    )


def pixels_of(rows):
    held_out = arrays("digits_fp32/data/held_out.npz")["pixels"]
    return {"pixels": held_out[rows % len(held_out)].astype(np.float32)}


def columns_of(rows, part="held_out"):
    """Rows of the tabular data as the model wants them: one [n, 1] tensor a feature."""
    columns = arrays(f"diabetes/data/{part}.npz")
    del columns["label"]
    return {
        name: values[rows % len(values)][:, None].astype(
            object if name == "sex" else np.float32
        )
        for name, values in columns.items()
    }


INPUTS = {
    "digits_fp32": pixels_of,
    "digits_int8": pixels_of,
    "diabetes": columns_of,
}


@pytest.mark.triton
@pytest.mark.parametrize("model", INPUTS)
def test_the_measured_accuracy_is_the_one_on_record(client, model) -> None:
    folder = "diabetes" if model == "diabetes" else "digits_fp32"
    truth = arrays(f"{folder}/data/held_out.npz")["label"]
    inputs = INPUTS[model](np.arange(len(truth)))
    labels = []
    for start in range(0, len(truth), 64):
        part = {name: array[start : start + 64] for name, array in inputs.items()}
        answer = infer(client, model, part).as_numpy("probabilities")
        labels.extend(answer.argmax(axis=1))
    assert int((np.array(labels) == truth).sum()) == RIGHT[model]


@pytest.mark.triton
def test_a_missing_number_counts_as_the_median(client) -> None:
    inputs = columns_of(np.arange(3))
    weights = arrays("diabetes/1/weights.npz")
    inputs["bmi"] = np.full((3, 1), np.nan, np.float32)
    missing = infer(client, "diabetes", inputs).as_numpy("probabilities")
    position = list(weights["features"]).index("bmi")
    inputs["bmi"] = np.full((3, 1), weights["median"][position], np.float32)
    median = infer(client, "diabetes", inputs).as_numpy("probabilities")
    np.testing.assert_allclose(missing, median, rtol=1e-6)


@pytest.mark.triton
def test_an_unseen_category_counts_as_none_of_the_known(client) -> None:
    inputs = columns_of(np.arange(3))
    answers = []
    for category in (*arrays("diabetes/1/weights.npz")["vocabulary"], b"unheard of"):
        inputs["sex"] = np.full((3, 1), category, object)
        answers.append(infer(client, "diabetes", inputs).as_numpy("probabilities"))
    *known, unseen = answers
    for answer in known:
        assert not np.isclose(unseen, answer).any()


@pytest.mark.triton
def test_the_slow_model_takes_as_long_as_it_is_told(client) -> None:
    given = {"input": np.arange(5, dtype=np.float32)}
    started = time.monotonic()
    output = infer(client, "slow", given, delay_ms=200).as_numpy("output")
    assert time.monotonic() - started >= 0.2
    assert np.array_equal(output, given["input"])


@pytest.mark.triton
def test_every_model_of_the_repository_is_ready_and_described(client) -> None:
    names = {path.parent.name for path in MODELS.glob("*/config.pbtxt")}
    index = client.get_model_repository_index().models
    assert {(entry.name, entry.state) for entry in index} == {
        (name, "READY") for name in names
    }
    readme = (MODELS / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in names)


# Tests of the files alone


def test_training_again_gives_the_same_bytes(tmp_path) -> None:
    subprocess.run(
        [sys.executable, MODELS / "train.py", tmp_path],
        check=True,
        timeout=patience(50),
    )
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")}
    committed = {path.relative_to(MODELS) for path in MODELS.rglob("*.npz")}
    assert made == committed
    for path in made:
        assert (tmp_path / path).read_bytes() == (MODELS / path).read_bytes(), path


def test_no_patient_is_in_two_parts_and_the_drift_part_is_older() -> None:
    parts = {
        name: arrays(f"diabetes/data/{name}.npz")
        for name in ("train", "held_out", "drift")
    }
    rows = [
        tuple(np.asarray(value).item() for value in row)
        for columns in parts.values()
        for row in zip(*columns.values(), strict=True)
    ]
    assert len(rows) == 442
    assert len(set(rows)) == 442
    assert max(parts["train"]["age"].max(), parts["held_out"]["age"].max()) < 60
    assert parts["drift"]["age"].min() >= 60
