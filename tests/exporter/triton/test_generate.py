"""Streamed answers of Triton's generate extension: what is read, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from openai_server import OpenAiServer, Scripted, Write, event

from exporter import errors
from exporter.own_requests.payload import InputSettings
from exporter.own_requests.sending import speaks_http
from exporter.triton import generate
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest, ModelSpec, TensorSpec
from exporter.triton.tensors import decode

SPEC = ModelSpec(
    "m",
    "1",
    (TensorSpec("text", "BYTES", (1,)),),
    (
        TensorSpec("word", "BYTES", (1,)),
        TensorSpec("scores", "FP32", (-1, 2)),
        TensorSpec("count", "UINT8", (1,)),
    ),
    decoupled=True,
)


def asked(*writes, status=200, inputs=None, spec=SPEC):
    """The reply to one request that is answered so, and what was sent."""
    inputs = {"text": np.array(["hé".encode()], object)} if inputs is None else inputs
    request = InferRequest("m", "1", "own-1", inputs, {}, {"max_tokens": 3})
    with OpenAiServer(lambda *_: Scripted(writes, status=status)) as server:
        http = HttpClient(server.address)
        try:
            reply = generate.infer_stream(http, request, spec, timeout_seconds=5)
        finally:
            http.close()
    return reply, server.asked


ONE = event({"model_name": "m", "word": "ä🙂", "scores": [1, 2, 3.5, 4], "count": 7})


def test_each_event_with_outputs_is_a_response_of_declared_shapes():
    whole = b": ping\n\n" + ONE + event({"id": "own-1"}) + event({"word": "end"})
    reply, sent = asked(*(Write(whole[i : i + 1]) for i in range(len(whole))))
    path, body = sent[0]
    assert path == "/v2/models/m/versions/1/generate_stream"
    assert body == {"id": "own-1", "max_tokens": 3, "text": "hé"}
    assert reply.responses == 2
    word, scores, count = map(decode, reply.streamed[0])
    assert (word.tolist(), count.tolist()) == (["ä🙂".encode()], [7])
    assert scores.tolist() == [[1, 2], [3.5, 4]]


def test_half_a_character_is_read_as_its_bytes():
    reply, _ = asked(
        *(Write(b'data: {"word": "%b"}\n\n' % b) for b in (b"\xc3", b"\xbc"))
    )
    assert [decode(one).tolist() for (one,) in reply.streamed] == [[b"\xc3"], [b"\xbc"]]


@pytest.mark.parametrize("text", [b"\xc3", b"\\ud83d"])
def test_an_error_with_half_a_character_can_be_written(text):
    with pytest.raises(errors.ModelError) as caught:
        asked(Write(b'data: {"error": "no %b"}\n\n' % text))
    assert str(caught.value).encode().startswith(b"no ")


def test_a_stream_without_responses_is_one():
    reply, _ = asked()
    assert (reply.responses, reply.first_response_seconds) == (0, None)


def test_a_number_of_values_that_fits_no_shape_is_shown_as_it_came():
    reply, _ = asked(Write(event({"scores": [1, 2, 3]})))
    assert reply.streamed[0][0].shape == (3,)


BAD = {
    "an error": ([Write(ONE + event({"error": "no"}))], 200, errors.ModelError, "no"),
    "an error first": ([Write(event({"error": "no"}))], 400, errors.ModelError, "no"),
    "refused": ([Write(b'{"error": "no"}')], 400, errors.InvalidRequestError, "no"),
    "cut off": ([Write(ONE[:-9])], 200, errors.ProtocolError, "cut off"),
    "broken": ([Write(ONE), Write(None, 0.05)], 200, errors.ProtocolError, ""),
    "no JSON": ([Write(b"data: {\n\n")], 200, errors.ProtocolError, "event"),
    "text for a number": (
        [Write(event({"scores": "x"}))],
        200,
        errors.ProtocolError,
        "event",
    ),
    "too large for it": (
        [Write(event({"count": 300}))],
        200,
        errors.ProtocolError,
        "300",
    ),
    "a number for text": (
        [Write(event({"word": 3}))],
        200,
        errors.ProtocolError,
        "text",
    ),
    "deep": (
        [Write(b'data: {"scores": ' + b"[" * 60_000 + b"\n\n")],
        200,
        errors.ProtocolError,
        "",
    ),
    "17 MB": (
        [Write(b"data: " + b"x" * (17 << 20) + b"\n\n")],
        200,
        errors.ProtocolError,
        "larger",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_streams_that_go_wrong(name):
    writes, status, kind, text = BAD[name]
    with pytest.raises(kind) as caught:
        asked(*writes, status=status)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.ones((2, 2)), "single values and lists"),
        (np.array([np.nan]), "JSON"),
        (np.array([b"\xff"], object), "JSON"),
    ],
)
def test_inputs_that_it_cannot_carry_are_refused(value, said):
    with pytest.raises(errors.InvalidRequestError, match=said):
        asked(inputs={"text": value})


@pytest.mark.parametrize(
    ("tensor", "batch", "carried"),
    [
        (TensorSpec("x", "FP32", (-1,)), 0, True),
        (TensorSpec("x", "FP32", (-1, 4)), 8, True),
        (TensorSpec("x", "FP32", (-1, 4)), 0, False),
        (TensorSpec("x", "BF16", (1,)), 0, False),
        (TensorSpec("id", "BYTES", (1,)), 0, False),
        (TensorSpec("parameters", "BYTES", (1,)), 0, False),
    ],
)
def test_models_that_it_reaches(tensor, batch, carried):
    spec = ModelSpec("m", "1", (tensor,), (), max_batch_size=batch, decoupled=True)
    assert generate.accepts(spec, spec.inputs) is carried


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": (TensorSpec("y", "FP16", (1,)),)},
        {"outputs": (TensorSpec("error", "FP32", (1,)),)},
        {"sequence": True},
    ],
)
def test_models_that_it_cannot_ask(changes):
    spec = ModelSpec("m", "1", (TensorSpec("x", "FP32", (1,)),), (), decoupled=True)
    assert not generate.accepts(replace(spec, **changes), spec.inputs)


@pytest.mark.parametrize(
    ("shape", "speaks"),
    [(None, True), ((1, 3), True), ((2, 3), False), ((1, 2, 2), False)],
)
def test_rows_that_it_cannot_carry(shape, speaks):
    spec = ModelSpec(
        "m", "1", (TensorSpec("x", "FP32", (-1, 3)),), (), 8, decoupled=True
    )
    assert speaks_http(spec, {"x": InputSettings(shape=shape)}) is speaks


def test_a_name_of_an_input_and_of_a_parameter_is_refused():
    with pytest.raises(errors.InvalidRequestError, match="as an input and as a"):
        asked(inputs={"max_tokens": np.array([1], np.int32)})


def test_values_are_sent_by_name_without_the_batch():
    inputs = {"x": np.array([[1.5, 2]], np.float32), "y": np.array([[3]], np.int32)}
    body = generate.generate_body(inputs, {}, is_batched=True)
    assert json.loads(body) == {"x": [1.5, 2], "y": 3}
