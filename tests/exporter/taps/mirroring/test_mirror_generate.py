"""Requests to generate and generate_stream, and their answers: tensors by the signature."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from mirror_bodies import RESPONSE

from exporter.access.inventory import Inventory
from exporter.access.work_board import KnownTokens
from exporter.triton.protocol_types import ModelSpec, TensorSpec

LLM = ModelSpec(
    "m",
    "1",
    inputs=(
        TensorSpec("text_input", "BYTES", (1,)),
        TensorSpec("stream", "BOOL", (1,), optional=True),
        TensorSpec("stop_words", "BYTES", (-1, -1), optional=True),
        TensorSpec("image", "FP32", (3, 8, 8), optional=True),
    ),
    outputs=(
        TensorSpec("text_output", "BYTES", (1,)),
        TensorSpec("finish_reason", "BYTES", (1,)),
        TensorSpec("num_input_tokens", "UINT32", (1,)),
        TensorSpec("num_output_tokens", "UINT32", (1,)),
    ),
    decoupled=True,
)


def body(**fields) -> bytes:
    return json.dumps(fields).encode()


def events(*documents) -> bytes:
    return b"".join(b"data: " + body(**fields) + b"\n\n" for fields in documents)


@pytest.fixture
def served(serve, access):
    access.board.publish(Inventory(models={("m", "1"): LLM}))
    return serve()


def found(tensors):
    return {name: (a.shape, a.ravel().tolist()) for name, a in tensors.items()}


@pytest.mark.parametrize("path", ["generate", "versions/1/generate_stream"])
def test_a_request_arrives_as_the_models_inputs(served, path):
    sent = body(
        text_input="häi", stream=True, stop_words=["a", "b"], temperature=0.1, id="r-7"
    )
    assert served.post(sent, path=f"/v2/models/m/{path}")[1] == "accepted"
    (got,) = served.got
    assert (got.model, got.request_id, got.as_sent) == ("m", "r-7", False)
    assert found(got.inputs) == {
        "text_input": ((1,), ["häi".encode()]),
        "stream": ((1,), [True]),
        "stop_words": ((1, 2), [b"a", b"b"]),
    }


def test_a_prompt_may_speak_of_inputs(served):
    sent = body(text_input="inputs", id="r-8")
    assert b'"inputs"' in sent
    assert served.post(sent, path="/v2/models/m/generate")[1] == "accepted"
    assert found(served.got[0].inputs)["text_input"] == ((1,), [b"inputs"])


def test_a_logged_prompt_is_the_models_input_of_that_name_before_it_is_openais(
    serve, access
):
    prompt = TensorSpec("prompt", "BYTES", (1,))
    access.board.publish(Inventory(models={("m", "1"): replace(LLM, inputs=(prompt,))}))
    served = serve()
    assert served.event(body(prompt="a cat"))[1] == "accepted"
    assert found(served.got[0].inputs) == {"prompt": ((1,), [b"a cat"])}


def test_a_stream_that_was_cut_within_an_event_is_not_an_answer(served):
    assert served.event(STREAM[:-20], RESPONSE)[0] == 400
    assert served.got == []


STREAM = events(
    {"text_output": "fi", "finish_reason": "None", "num_output_tokens": 1},
    {"text_output": "rst", "finish_reason": "stop", "num_output_tokens": 2},
)


@pytest.mark.parametrize(
    ("sent", "tokens"),
    [
        (body(model_name="m", text_output="first", finish_reason="stop"), None),
        (STREAM, 3),
        (b": ping\n\n" + STREAM.replace(b"\n", b"\r\n"), 3),
    ],
)
def test_a_logged_answer_arrives_whole_with_its_tokens(served, access, sent, tokens):
    assert served.event(sent, RESPONSE)[1] == "accepted"
    (got,) = served.got
    assert found(got.outputs)["text_output"] == ((1,), [b"first"])
    assert found(got.outputs)["finish_reason"] == ((1,), [b"stop"])
    known = access.work.answers_of("m", "output")
    assert known == (None if tokens is None else KnownTokens(1, tokens))


def test_our_own_are_left_out(served):
    sent = body(text_input="hi", id="tritonwatch-synthetic-0a1b2c3d-1")
    assert served.post(sent, path="/v2/models/m/generate")[1] == "own"
    assert served.got == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (body(prompt="not an input"), 400),
        (body(text_input={"a": 1}), 400),
        (body(text_input=["a", ["b"]]), 400),
        (body(stream="yes"), 400),
        (body(image=1.0), 422),
        (b"[1]", 400),
        (b"", 400),
    ],
)
def test_what_cannot_be_used_is_refused(served, sent, status):
    assert served.post(sent, path="/v2/models/m/generate")[0] == status
    assert served.got == []


def test_an_error_within_a_stream_is_a_failure(served):
    sent = events({"text_output": "fi"}, {"error": "out of memory"})
    assert served.event(sent, RESPONSE)[1] == "accepted"
    assert served.got == []
