"""Columns of text files, which a model's datatypes make numbers or text."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from exporter.errors import GoldenDataError
from exporter.features.golden import golden_data, golden_formats
from exporter.features.golden.golden_data import prepare
from exporter.features.golden.golden_scoring import Scoring
from exporter.features.golden.golden_settings import GoldenData
from exporter.triton.protocol_types import ModelSpec, TensorSpec


def signature(inputs, outputs):
    return ModelSpec("m", "1", tuple(inputs), tuple(outputs), 8)


def test_names_that_end_in_numbers_are_names(tmp_path) -> None:
    """PyTorch models of Triton have them."""
    path = tmp_path / "golden.csv"
    path.write_text(
        "INPUT__0[0],INPUT__0[1],INPUT__1,expected:OUTPUT__0\n1.5,2,7,3\n2.5,3,8,4\n"
    )
    model = signature(
        [
            TensorSpec("INPUT__0", "FP32", (-1, 2)),
            TensorSpec("INPUT__1", "INT32", (-1, 1)),
        ],
        [TensorSpec("OUTPUT__0", "FP32", (-1, 1))],
    )
    prepared = prepare(golden_data.read(GoldenData(file=path)), model)
    assert prepared.inputs["INPUT__0"].tolist() == [[1.5, 2], [2.5, 3]]
    assert prepared.inputs["INPUT__1"].tolist() == [[7], [8]]
    assert prepared.expected["OUTPUT__0"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("datatype", "values", "told"),
    [
        ("INT32", [1, 2.5], "found 2.5; INT32 takes whole numbers from -2147483648"),
        ("UINT8", [1, 256], "found 256; UINT8 takes whole numbers from 0 to 255"),
        ("INT64", [1, True], "found True; INT64 takes"),
        ("INT64", [1, "2"], "found '2'; INT64 takes"),
        ("FP32", [1, True], "found True; FP32 takes numbers"),
        ("FP32", ["1.5", 2], "found '1.5'; FP32 takes numbers"),
        ("FP32", [1, 1e39], "found 1e+39; FP32 takes numbers"),
        ("BOOL", [True, 2], "found 2; BOOL takes true and false"),
        ("BYTES", ["a", None], "found None; BYTES takes text"),
    ],
)
def test_a_value_that_a_datatype_does_not_have_is_refused_in_json(
    tmp_path, datatype, values, told
) -> None:
    path = tmp_path / "golden.json"
    good = {"name": "x", "datatype": "INT8", "shape": [1, 1], "data": [[1]]}
    bad = {"name": "y", "datatype": datatype, "shape": [1, 2], "data": [values]}
    path.write_text(json.dumps([{"inputs": [good]}, {"inputs": [good, bad]}]))
    with pytest.raises(GoldenDataError) as refused:
        golden_data.read(GoldenData(file=path))
    assert "row 1: 'y': " + told in str(refused.value)
    assert str(refused.value).endswith(": correct the value, or the datatype")


def test_text_of_digits_stays_text(tmp_path) -> None:
    path = tmp_path / "golden.csv"
    path.write_text("zip,product,expected:code\n01234,A12,007\n00501,123,1.50\n")
    texts = [TensorSpec(name, "BYTES", (-1, 1)) for name in ("zip", "product")]
    model = signature(texts, [TensorSpec("code", "BYTES", (-1, 1))])
    settings = GoldenData(file=path)
    prepared = prepare(golden_data.read(settings), model)
    assert prepared.inputs["zip"].ravel().tolist() == [b"01234", b"00501"]
    assert prepared.inputs["product"].ravel().tolist() == [b"A12", b"123"]
    answers = np.array([[b"007"], [b"1.50"]], object)
    judged = Scoring(prepared, settings, model).judge(np.arange(2), {"code": answers})
    assert judged.outcomes["right"] == 2


@pytest.mark.parametrize(
    ("wanted", "answered"),
    [("10000.0", 10_009), ("9007199254740992", 9_007_199_254_740_993)],
)
def test_integers_are_equal_or_wrong(tmp_path, wanted, answered) -> None:
    path = tmp_path / "golden.csv"
    path.write_text(f"x[0],x[1],x[2],expected:id\n1,2,3,{wanted}\n1,2,4,1\n")
    model = signature(
        [TensorSpec("x", "FP32", (-1, 3))],
        [TensorSpec("id", "INT64", (-1, 1))],
    )
    settings = GoldenData(file=path)
    prepared = prepare(golden_data.read(settings), model)
    found = {"id": np.array([[answered], [1]])}
    judged = Scoring(prepared, settings, model).judge(np.arange(2), found)
    assert (judged.outcomes["right"], judged.outcomes["wrong"]) == (1, 1)


@pytest.mark.parametrize(
    ("written", "datatype", "wanted"),
    [
        (["1.75", "2.50"], "FP32", [1.75, 2.5]),
        (["1.75", "2.00"], "FP32", [1.75, 2.0]),
        (["9007199254740993", "2"], "INT64", [9_007_199_254_740_993, 2]),
    ],
)
def test_decimals_of_parquet_keep_their_value(tmp_path, written, datatype, wanted):
    path = tmp_path / "golden.parquet"
    decimals = pa.array([Decimal(number) for number in written])
    table = dict.fromkeys(("x", "expected:y", "label"), decimals)
    parquet.write_table(pa.table(table), path)
    model = signature(
        [TensorSpec("x", datatype, (-1, 1))], [TensorSpec("y", datatype, (-1, 1))]
    )
    golden = golden_data.read(GoldenData(file=path, label="label"))
    prepared = prepare(golden, model)
    assert prepared.inputs["x"].ravel().tolist() == wanted
    assert prepared.expected["y"].tolist() == wanted
    assert golden.labels.tolist() == wanted


def labelled(tmp_path, labels):
    path = tmp_path / "golden.npz"
    np.savez(path, x=np.arange(len(labels), dtype=float), label=np.array(labels))
    model = signature(
        [TensorSpec("x", "FP32", (-1, 1))], [TensorSpec("p", "FP32", (-1, 1))]
    )
    settings = GoldenData(file=path, label="label")
    return Scoring(prepare(golden_data.read(settings), model), settings, model)


def test_one_answer_beyond_one_makes_no_logits_of_the_others(tmp_path) -> None:
    scoring = labelled(tmp_path, [0, 0, 1] * 20)
    answers = np.array([[0.1], [0.2], [0.9]] * 20, np.float32)
    glitch = answers.copy()
    glitch[0] = 7.3
    scoring.judge(np.arange(60), {"p": glitch})
    scoring.judge(np.arange(60), {"p": answers})
    assert dict(scoring.scores())["accuracy"] == 1


def test_answers_before_the_first_clear_logit_are_not_scored_as_probabilities(
    tmp_path,
) -> None:
    """0.3 is class 1 as a logit, and class 0 as a probability."""
    scoring = labelled(tmp_path, [1, 0, 1, 0])
    answers = np.array([[0.3], [-4.0], [5.0], [-0.2]], np.float32)
    for place in range(4):
        scoring.judge(np.array([place]), {"p": answers[[place]]})
    assert dict(scoring.scores())["accuracy"] == 1
    assert not scoring.answered.all()
    scoring.judge(np.arange(4), {"p": answers})
    assert dict(scoring.scores())["accuracy"] == 1
    assert scoring.answered.all()


@settings(max_examples=60)
@given(
    form=st.sampled_from(["npz", "csv", "parquet", "json"]),
    raw=st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(str.encode),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "inputs",
                            "outputs",
                            "data",
                            "name",
                            "shape",
                            "datatype",
                            "content",
                            "x",
                        ]
                    ),
                    inner,
                    max_size=4,
                )
            ),
        ).map(
            lambda value: repr(value).replace("'", '"').replace("None", "null").encode()
        ),
    ),
)
def test_whatever_a_file_holds_is_columns_or_one_clear_error(form, raw) -> None:
    told, columns = "FILE: ", {}
    try:
        columns, _ = golden_formats.read(raw, form, "FILE")
    except GoldenDataError as error:
        told = str(error)
    assert told.startswith("FILE: ")
    assert all(isinstance(column, np.ndarray) for column in columns.values())
