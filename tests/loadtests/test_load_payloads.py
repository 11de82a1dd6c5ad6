"""Bodies from files: what fits is sent as it stands, what does not is told."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from exporter.triton.protocol_types import ModelSpec, OutputTensor, TensorSpec
from exporter.triton.tensors import array_dtype, encode
from loadtests import execute
from loadtests.engine.answer_frames import AnswerCheck
from loadtests.errors import PlanError
from loadtests.execute import prepared
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.data_file import rows_of
from loadtests.plan import Entry
from loadtests.scenario import Scenario

BATCHED = ModelSpec(
    "m",
    "1",
    (TensorSpec("x", "FP32", (-1, 3)),),
    (TensorSpec("y", "FP32", (-1, 2)),),
    max_batch_size=8,
)
TEXT = ModelSpec(
    "t",
    "",
    (TensorSpec("words", "BYTES", (2,)), TensorSpec("n", "INT32", (1,))),
    (TensorSpec("out", "FP32", (1,)),),
)
X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.arange(8, dtype=np.float32).reshape(4, 2)


def npz(folder, **arrays):
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_json(folder, document):
    file = folder / "data.json"
    file.write_text(json.dumps(document), "utf-8")
    return file


def test_samples_become_batches_and_outputs_the_right_answers(tmp_path) -> None:
    rows = list(rows_of(npz(tmp_path, x=X, y=Y), BATCHED, batch=2))
    assert [row.inputs["x"].tolist() for row in rows] == [
        X[:2].tolist(),
        X[2:].tolist(),
    ]
    assert rows[1].expected["y"].tolist() == Y[2:].tolist()


@pytest.mark.parametrize("columns", ["lists", "features"])
def test_a_table_has_a_column_an_input_or_one_a_feature(tmp_path, columns) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {"x": X.tolist()}
    if columns == "features":
        table = {name: X[:, place].tolist() for place, name in enumerate("abc")}
    parquet.write_table(pa.table(table), tmp_path / "data.parquet")
    rows = list(rows_of(tmp_path / "data.parquet", BATCHED))
    assert len(rows) == 4
    assert rows[3].inputs["x"].tolist() == X[3:].tolist()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[1.0, 2.0, 3.0], [1.0]], "row 1: 'x': has the shape [1]"),
        ([[1.0, 2.0, 3.0], None], "row 1: 'x': is empty"),
    ],
)
def test_a_table_with_gaps_is_told_with_its_row(tmp_path, values, told) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"x": values}), tmp_path / "data.parquet")
    with pytest.raises(PlanError) as refused:
        list(rows_of(tmp_path / "data.parquet", BATCHED))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "tensor",
    [
        [3, 4, 5],
        {"content": [3, 4, 5]},
        {"content": [[3, 4, 5]], "shape": [3]},
        {"b64": base64.b64encode(np.array([3, 4, 5], "<f4").tobytes()).decode()},
    ],
)
def test_perf_analyzers_input_is_read_in_all_its_forms(tmp_path, tensor) -> None:
    document = {"data": [{"x": tensor}], "validation_data": [{"y": [1, 2]}]}
    (row,) = rows_of(as_json(tmp_path, document), BATCHED)
    assert row.inputs["x"].tolist() == [[3, 4, 5]]
    assert row.expected["y"].tolist() == [[1, 2]]


def test_sequences_of_perf_analyzer_are_sent_one_after_the_other(tmp_path) -> None:
    steps = [[{"words": ["a", "b"], "n": [1]}, {"words": ["c", "d"], "n": [2]}]]
    rows = list(rows_of(as_json(tmp_path, {"data": steps}), TEXT))
    assert [row.inputs["n"].tolist() for row in rows] == [[1], [2]]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("data.npz", {"z": X}, "needs the input 'x'"),
        ("data.npz", {"x": X, "z": X}, "found ['z']"),
        ("data.npz", {"x": X[:, :2]}, "samples of the shape [2]"),
        ("data.npz", {"x": X, "y": Y[:3]}, "found [3, 4] samples"),
        ("data.npz", {"x": X[:0]}, "found [0] samples"),
        ("data.npz", {"x": np.array([["a", "b", "c"]])}, "want FP32"),
        ("data.npz", {"x": X.astype(np.complex64)}, "want FP32"),
        ("data.json", [], "found no list"),
        ("data.json", {"data": []}, 'found no "data"'),
        ("data.json", {"data": [1]}, "not an object"),
        ("data.json", {"data": [{"q": [1]}]}, "data[0]: found ['q']"),
        ("data.json", {"data": [{}]}, "found no ['x']"),
        ("data.json", {"data": [{"x": [1, 2]}]}, "2 values for 'x'"),
        ("data.json", {"data": [{"x": ["a", "b", "c"]}]}, "want FP32"),
        ("data.json", {"data": [{"x": [[1], [2, 3]]}]}, "lists of different lengths"),
        ("data.json", {"data": [{"x": [1, True, 3]}]}, "found True for 'x'; want FP32"),
        (
            "data.json",
            {"data": [{"x": [1e39, 2, 3]}]},
            "found 1e+39 for 'x'; want FP32",
        ),
        ("data.json", {"data": [{"x": {"b64": "%"}}]}, "not valid base64"),
        (
            "data.json",
            {"data": [{"x": [1, 2, 3]}], "validation_data": [{}, {}]},
            "want the same number",
        ),
        ("data.npz", b"no zip", "is not a readable npz file"),
        ("data.npz", b"", "is not a readable npz file"),
        ("data.npz", npy(X), "is not a readable npz file"),
        ("data.json", b"{", "is not valid JSON"),
        ("data.parquet", b"x", "is not a readable parquet file"),
        ("data.csv", b"1,2", "found the ending '.csv'"),
    ],
)
def test_a_file_that_does_not_fit_is_told_with_its_name_and_place(
    tmp_path, name, content, told
) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif name == "data.npz":
        np.savez(file, **content)
    else:
        as_json(tmp_path, content)
    with pytest.raises(PlanError) as refused:
        list(rows_of(file, BATCHED))
    assert told in str(refused.value)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("datatype", "values", "told"),
    [
        ("INT8", [1, 300], "found 300 for 'x'; want INT8, from -128 to 127"),
        ("UINT8", [-1], "found -1 for 'x'; want UINT8, from 0 to 255"),
        ("INT32", [1, 1.5], "found float64 for 'x'; want INT32"),
        ("INT32", [True], "found True for 'x'; want INT32"),
        ("INT32", ["1"], "for 'x'; want INT32"),
        ("FP16", [70_000], "found 70000 for 'x'; want FP16, from -65504"),
        ("BYTES", ["a", 5], "found 5 for 'x'; want BYTES"),
        ("BYTES", [None], "found None for 'x'; want BYTES"),
    ],
)
def test_a_value_that_would_be_sent_as_another_is_refused(
    tmp_path, datatype, values, told
) -> None:
    spec = ModelSpec("m", "", (TensorSpec("x", datatype, (-1,)),), ())
    file = as_json(tmp_path, {"data": [{"x": values}]})
    with pytest.raises(PlanError) as refused:
        list(rows_of(file, spec))
    assert f"{file}: data[0]" in str(refused.value)
    assert told in str(refused.value)


def test_a_batch_that_is_not_sent_is_refused(tmp_path) -> None:
    """Inferences and joules of a batch are counted by its size."""
    file = as_json(tmp_path, {"data": [{"x": [1, 2, 3]}]})
    with pytest.raises(PlanError, match="found batch 4; want 1: each object of"):
        list(rows_of(file, BATCHED, batch=4))
    alone = replace(BATCHED, max_batch_size=0)
    with pytest.raises(
        PlanError, match="found batch 4; m takes no batches: leave it out"
    ):
        list(rows_of(npz(tmp_path, x=X[:, None]), alone, batch=4))


def test_a_file_that_is_not_there_is_told(tmp_path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        rows_of(tmp_path / "none.npz", BATCHED)


def bodies_of(fake, folder, **model):
    file = npz(folder, INPUT0=np.arange(160, dtype=np.float32).reshape(40, 4))
    given = {"model": "fake", "data": str(file), **model}
    scenario = Scenario(
        target={"address": fake.grpc}, models=[given], profile={"kind": "closed"}
    )
    return prepared(scenario).entries[0].bodies


def test_every_sample_of_a_file_is_sent_unless_fewer_are_wanted(fake, tmp_path) -> None:
    assert len({body.data for body in bodies_of(fake, tmp_path)}) == 40
    assert len(bodies_of(fake, tmp_path, variants=5)) == 5


def test_a_file_that_is_too_large_is_sent_in_part(fake, tmp_path, monkeypatch) -> None:
    size = len(bodies_of(fake, tmp_path)[0].data)
    monkeypatch.setattr(execute, "UNASKED_BYTES", 10 * size + 1)
    assert len(bodies_of(fake, tmp_path)) == 10
    monkeypatch.setattr(execute, "MAX_BYTES", 10 * size + 1)
    with pytest.raises(PlanError, match="fewer variants"):
        bodies_of(fake, tmp_path, variants=11)


@pytest.mark.parametrize(
    ("datatype", "answer", "right", "tolerance", "is_wrong"),
    [
        ("INT64", 200_001, 200_000, 1e-5, True),
        ("UINT8", 0, 255, 1e-5, True),
        ("UINT8", 7, 8, 1.0, False),
        ("UINT8", 6, 8, 1.0, True),
        ("INT64", 7, 7.0, 0.0, False),
        ("FP32", 200_001.0, 200_000.0, 1e-5, False),
        ("FP16", 0.1, 0.1, 1e-5, False),
        ("FP16", 0.1001, 0.1, 1e-5, True),
        ("FP16", 1e-7, 1e-7, 0.0, False),
        ("FP16", np.inf, 1e6, 0.0, False),
        ("FP32", 0.1, 0.1, 0.0, False),
        ("FP32", np.nan, np.nan, 0.0, False),
        ("FP32", np.nan, 0.1, 0.0, True),
        ("FP32", np.inf, 0.1, 1e-5, True),
    ],
)
def test_numbers_are_the_correct_answer_or_not(
    datatype, answer, right, tolerance, is_wrong
) -> None:
    """An integer's neighbour is another token; a decimal counts as what the datatype holds."""
    spec = ModelSpec("m", "1", (), (TensorSpec("y", datatype, (1,)),))
    check = AnswerCheck(Entry("m", spec, (), tolerance=tolerance))
    dtype = array_dtype(datatype)
    output = OutputTensor("y", datatype, (1,), np.array([answer], dtype).tobytes())
    body = body_of(spec, Row({}, {"y": np.array([right])}), "grpc")
    said = "output 'y' is not the correct answer" if is_wrong else None
    assert check.fault((output,), body) == said


ONE_LABEL = ModelSpec(
    "m", "", (TensorSpec("x", "FP32", (1,)),), (TensorSpec("y", "BYTES", (1,)),)
)


@pytest.mark.parametrize("as_text", [np.array([["käse"]]), [["käse"]]])
def test_labels_that_a_file_gives_as_text_are_the_correct_answer(
    tmp_path, as_text
) -> None:
    if isinstance(as_text, list):
        document = {"data": [{"x": [1]}], "validation_data": [{"y": as_text[0]}]}
        path = as_json(tmp_path, document)
    else:
        path = npz(tmp_path, x=np.ones((1, 1), np.float32), y=as_text)
    (row,) = rows_of(path, ONE_LABEL)
    check = AnswerCheck(Entry("m", ONE_LABEL, ()))

    def fault(label: str) -> str | None:
        raw = encode(np.array([label], object), "BYTES")
        output = OutputTensor("y", "BYTES", (1,), raw)
        return check.fault((output,), body_of(ONE_LABEL, row, "grpc"))

    assert fault("käse") is None
    assert fault("brot") == "output 'y' is not the correct answer"
