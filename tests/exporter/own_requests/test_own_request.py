"""What a request of our own may contain, and that all are built in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import InvalidRequestError
from exporter.own_requests.own_request import own_request
from exporter.triton.protocol_types import ModelSpec, TensorSpec
from exporter.triton.sequence_ids import common_type, control_type, draw_sequence_id

ROOT = Path(__file__).parents[3]
X = TensorSpec("x", "FP32", (1,))
INPUTS = {"x": np.zeros(1, np.float32)}
RANGES = {
    "INT32": (1, 2**31 - 1),
    "UINT32": (1, 2**32 - 1),
    "INT64": (1, 2**63 - 1),
    "UINT64": (1, 2**63 - 1),
}


def spec(**changes):
    return ModelSpec("m", "1", (X,), (X,), **changes)


@pytest.mark.parametrize("datatype", RANGES)
def test_a_sequence_has_one_request_and_an_integer_id_that_the_control_holds(datatype):
    least, most = RANGES[datatype]
    ids = set()
    for _ in range(500):
        request = own_request(
            spec(sequence=True, sequence_id_type=datatype), "r-1", INPUTS
        )
        ids.add(request.parameters["sequence_id"])
        assert request.parameters["sequence_start"] is True
        assert request.parameters["sequence_end"] is True
    assert all(type(found) is int and least <= found <= most for found in ids)
    assert len(ids) == 500
    # Far from where clients begin to count.
    assert min(ids) > most // 2


def test_a_string_id_goes_only_to_a_model_that_declares_it():
    declared = own_request(
        spec(sequence=True, sequence_id_type="STRING"), "r", INPUTS
    ).parameters["sequence_id"]
    assert isinstance(declared, str)
    assert declared.startswith("tritonwatch-")
    for other in (spec(), spec(sequence_id_type="UINT64")):
        with pytest.raises(InvalidRequestError, match="sequence_id"):
            own_request(other, "r", INPUTS, parameters={"sequence_id": "abc"})


def test_a_configured_id_does_not_replace_ours():
    request = own_request(
        spec(sequence=True),
        "r",
        INPUTS,
        parameters={"sequence_id": "abc", "sequence_end": False, "mine": 3},
    )
    assert isinstance(request.parameters["sequence_id"], int)
    assert request.parameters["sequence_end"] is True
    assert request.parameters["mine"] == 3


def test_a_plain_model_gets_no_parameters():
    assert own_request(spec(), "r", INPUTS).parameters == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence_id", 0),
        ("sequence_id", -1),
        ("sequence_id", True),
        ("sequence_id", 2**63),
        ("sequence_id", ""),
        ("sequence_start", "yes"),
        ("sequence_end", 1),
        ("priority", -1),
        ("priority", "1"),
        ("timeout", -1),
        ("timeout", True),
        ("other", 2**64),
    ],
)
def test_parameters_that_triton_could_choke_on_are_refused(name, value):
    with pytest.raises(InvalidRequestError, match=name):
        own_request(spec(), "r", INPUTS, parameters={name: value})


@pytest.mark.parametrize(
    "request_id", ["", 'a"b', "a\nb", "a\\b", "ü", "x" * 129, "a b"]
)
def test_a_request_id_that_would_break_a_trace_file_is_refused(request_id):
    with pytest.raises(InvalidRequestError, match="request id"):
        own_request(spec(), request_id, INPUTS)


def test_the_type_of_ids_is_that_of_the_one_control():
    start = ("CONTROL_SEQUENCE_START", "TYPE_INVALID")
    for datatype in ("UINT64", "INT64", "UINT32", "INT32", "STRING"):
        of_id = ("CONTROL_SEQUENCE_CORRID", f"TYPE_{datatype}")
        assert control_type([start, of_id]) == datatype
    assert control_type([start]) == "UINT64"
    assert control_type([("CONTROL_SEQUENCE_CORRID", "TYPE_INVALID")]) == "UINT64"


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        ((), "UINT64"),
        (("STRING",), "STRING"),
        (("STRING", "UINT64"), "UINT64"),
        (("UINT64", "INT32"), "INT32"),
    ],
)
def test_an_ensemble_gets_an_id_that_harms_none_of_its_steps(types, wanted):
    assert common_type(types) == wanted


def test_ids_are_drawn_with_both_ends_of_the_range():
    assert draw_sequence_id("INT32", lambda low, _: low, prefix="") == 3 << 29
    assert draw_sequence_id("UINT32", lambda _, end: end - 1, prefix="") == 2**32 - 1


def test_every_request_of_ours_is_built_in_one_place():
    # The demo and load tests play clients, whose requests are not ours.
    allowed = {
        "exporter/own_requests/own_request.py",
        "exporter/demo/demo_traffic.py",
        "loadtests/payloads/bodies.py",
    }
    found = {
        str(path.relative_to(ROOT))
        for folder in ("exporter", "loadtests")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "InferRequest"
    }
    assert found == allowed
