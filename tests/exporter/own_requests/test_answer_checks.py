"""An answer with success is told from an answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.own_requests.answer_checks import output_fault
from exporter.triton.protocol_types import ModelSpec, OutputTensor, TensorSpec
from exporter.triton.tensors import DATATYPES, FLOATS, array_dtype, encode

ALL = frozenset({"nan", "inf", "all_zero", "constant"})
NONE: frozenset[str] = frozenset()
NUMBERS = [d for d in DATATYPES if d != "BYTES"]


def spec(*outputs):
    return ModelSpec("m", "1", (), outputs)


def declared(datatype="FP32", shape=(-1, 3), name="Y"):
    return TensorSpec(name, datatype, shape)


def answer(values, datatype="FP32", shape=None, name="Y"):
    array = np.array(values, dtype=array_dtype(datatype))
    shape = array.shape if shape is None else shape
    return OutputTensor(name, datatype, shape, encode(array, datatype))


def fault(values, datatype="FP32", checks=ALL):
    shape = np.array(values, dtype=object).shape
    declaration = declared(datatype, shape)
    return output_fault(spec(declaration), [answer(values, datatype)], checks)


@pytest.mark.parametrize("datatype", NUMBERS)
def test_a_right_answer_has_no_fault(datatype):
    assert fault([[0, 1]], datatype) is None


# What is always wrong.


def test_a_missing_output_is_told_with_those_there_are():
    found = output_fault(
        spec(declared(name="A"), declared(name="B")),
        [answer([[1, 2, 3]], name="A"), answer([[1]], name="C")],
        NONE,
    )
    assert found == "output 'B' is missing; found ['A', 'C']"
    assert output_fault(spec(declared()), [], NONE) == "output 'Y' is missing; found []"


def test_an_output_nobody_declared_is_no_fault():
    outputs = [answer([[1, 2, 3]]), answer([math.nan], name="EXTRA")]
    assert output_fault(spec(declared()), outputs, ALL) is None


def test_another_datatype_is_a_fault():
    found = output_fault(spec(declared("FP32")), [answer([[1, 2, 3]], "FP64")], NONE)
    assert found == "output 'Y' is FP64; the model declares FP32"


@pytest.mark.parametrize("shape", [(2, 4), (3,), (1, 3, 1), ()])
def test_another_shape_is_a_fault(shape):
    values = np.ones(shape)
    found = output_fault(spec(declared()), [answer(values)], NONE)
    assert found == (f"output 'Y' has shape {list(shape)}; the model declares [-1, 3]")


@pytest.mark.parametrize("shape", [(1, 3), (7, 3), (0, 3)])
def test_an_open_dimension_takes_any_size(shape):
    values = np.arange(math.prod(shape)).reshape(shape)
    assert output_fault(spec(declared()), [answer(values)], ALL) is None


@pytest.mark.parametrize("datatype", DATATYPES)
def test_success_with_empty_content_is_a_fault_of_every_datatype(datatype):
    # What a Python backend answers under a numpy it was not built for.
    empty = OutputTensor("Y", datatype, (1, 3), b"")
    found = output_fault(spec(declared(datatype)), [empty], NONE)
    assert found is not None
    assert found.startswith("output 'Y' h")


def test_half_of_the_content_is_a_fault():
    half = OutputTensor("Y", "FP32", (1, 3), bytes(6))
    assert output_fault(spec(declared()), [half], NONE) == (
        "output 'Y' has 6 bytes; FP32[1, 3] needs 12"
    )


def test_a_negative_size_is_a_fault():
    odd = OutputTensor("Y", "FP32", (-1, 3), b"")
    assert "shape [-1, 3]" in output_fault(spec(declared()), [odd], NONE)


def test_the_first_fault_is_the_one_told():
    outputs = [answer([[math.nan] * 3], name="A"), answer([[0, 0, 0]], name="B")]
    found = output_fault(spec(declared(name="A"), declared(name="B")), outputs, ALL)
    assert found == "output 'A' holds 3 NaN"


def test_a_model_without_outputs_has_nothing_wrong():
    assert output_fault(spec(), [], ALL) is None


# What is wrong where it is asked for.


@pytest.mark.parametrize("datatype", sorted(FLOATS))
@pytest.mark.parametrize(
    ("values", "check", "told"),
    [
        ([[1.0, math.nan, math.nan]], "nan", "output 'Y' holds 2 NaN"),
        ([[1.0, math.inf, -math.inf]], "inf", "output 'Y' holds 2 Inf"),
        ([[0.0, 0.0, -0.0]], "all_zero", "output 'Y' is all zeros (3 values)"),
        ([[2.5, 2.5]], "constant", "output 'Y' is constant (2 equal values)"),
    ],
)
def test_each_check_finds_its_fault_and_no_other(datatype, values, check, told):
    assert fault(values, datatype, frozenset({check})) == told
    others = ALL - {check} - ({"constant"} if check == "all_zero" else set())
    assert fault(values, datatype, others) is None


@pytest.mark.parametrize("datatype", NUMBERS)
def test_zeros_and_constants_are_found_in_every_datatype_of_numbers(datatype):
    assert "all zeros" in fault([0, 0], datatype, frozenset({"all_zero"}))
    assert "constant" in fault([1, 1], datatype, frozenset({"constant"}))


def test_texts_are_not_judged_by_value():
    assert fault([b"", b""], "BYTES") is None
    assert fault([b"same", b"same"], "BYTES") is None


def test_nothing_is_neither_zero_nor_constant():
    assert fault(np.zeros((0,))) is None


@given(st.lists(st.floats(width=32), min_size=1, max_size=6))
def test_checks_agree_with_a_plain_reading(values):
    expected = {
        "nan": any(map(math.isnan, values)),
        "inf": any(map(math.isinf, values)),
        "all_zero": not any(values),
        "constant": len(values) > 1 and all(v == values[0] for v in values),
    }
    found = {c: fault(values, checks=frozenset({c})) is not None for c in expected}
    assert found == expected
