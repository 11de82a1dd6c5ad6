"""What a mirror collector behind a real tap refuses, with the reason it gives."""

from __future__ import annotations

import gzip
import json

import pytest
from bombs import gzip_bomb, zlib_bomb
from mirror_bodies import request, tensor
from running_taps import REQUEST, MirrorTap

NESTED = b'{"inputs": ' + b"[" * 100_000
HUGE = [2**40, 2**40]
REFUSED = {
    "no JSON": (b"{", {}, 400),
    "not an object": (b"[]", {}, 400),
    "deep": (NESTED, {}, 400),
    "deep data": (
        request(tensor(shape=(1,), data=json.loads("[" * 40 + "1" + "]" * 40))),
        {},
        400,
    ),
    "no inputs": (b"{}", {}, 400),
    "tensors that are none": (b'{"inputs": [1]}', {}, 400),
    "no shape": (b'{"inputs": [{"name": "x", "datatype": "FP32"}]}', {}, 400),
    "negative size": (request(tensor(shape=(-1, 2))), {}, 400),
    "a size that is true": (request(tensor(shape=(True, 2))), {}, 400),
    "huge shape": (request(tensor(shape=HUGE)), {}, 400),
    "huge shape of nothing": (request(tensor(shape=[*HUGE, 0], data=[])), {}, 400),
    "a thousand dimensions": (request(tensor(shape=[1] * 1000, data=[1])), {}, 400),
    "too few elements": (request(tensor(shape=(3,))), {}, 400),
    "ragged": (request(tensor(data=[[1], 2])), {}, 400),
    "text for a number": (request(tensor(data=["1", "2"])), {}, 400),
    "a fraction for an integer": (request(tensor(datatype="INT32")), {}, 400),
    "a number too large": (request(tensor(datatype="UINT8", data=[1, 256])), {}, 400),
    "no float": (request(tensor(data=[1, 10**400])), {}, 400),
    "an integer of ten thousand digits": (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":['
        + b"1" * 10_000
        + b"]}]}",
        {},
        400,
    ),
    "half a character": (
        request(tensor(datatype="BYTES", data=["\ud800", "x"])),
        {},
        400,
    ),
    "unknown datatype": (request(tensor(datatype="FP8")), {}, 400),
    "twice": (request(tensor(), tensor()), {}, 400),
    "a name without end": (request(tensor(name="x" * 5000)), {}, 400),
    "a name nobody can show": (request(tensor(name="\ud800")), {}, 400),
    "more tensors than a model has": (
        request(*(tensor(str(n), (1,), data=[1]) for n in range(5000))),
        {},
        400,
    ),
    "shared memory": (
        request(tensor(data=None, shared_memory_region="r")),
        {},
        422,
    ),
    "raw binary": (b"\0" * 8, {"inference_header_content_length": "0"}, 422),
    "a header that is no length": (
        request(),
        {"inference_header_content_length": "-1"},
        400,
    ),
    "a header beyond the body": (
        request(),
        {"inference_header_content_length": "99999"},
        400,
    ),
    "a size that lies": (
        request(tensor(data=None, binary_data_size=80)) + b"\0" * 8,
        {
            "inference_header_content_length": str(
                len(request(tensor(data=None, binary_data_size=80)))
            )
        },
        400,
    ),
    "a size below zero": (request(tensor(data=None, binary_data_size=-8)), {}, 400),
    "data twice": (request(tensor(binary_data_size=8)), {}, 400),
    "a tail": (
        request() + b"tail",
        {"inference_header_content_length": str(len(request()))},
        400,
    ),
    "a text's length that lies": (
        request(tensor(datatype="BYTES", data=None, shape=(1,), binary_data_size=8))
        + b"\xff\xff\xff\x7fabcd",
        {
            "inference_header_content_length": str(
                len(
                    request(
                        tensor(
                            datatype="BYTES",
                            data=None,
                            shape=(1,),
                            binary_data_size=8,
                        )
                    )
                )
            )
        },
        400,
    ),
    "too large": (b" " * (3 << 20), {}, 413),
    "bomb": (gzip_bomb(100), {"content_encoding": "gzip"}, 413),
    "deflate bomb": (
        zlib_bomb(100),
        {"content_encoding": "deflate"},
        413,
    ),
    "brotli": (request(), {"content_encoding": "br"}, 415),
}
COUNTED = {400: "malformed", 413: "too_large", 415: "unsupported", 422: "unsupported"}


@pytest.fixture(scope="module")
def shared(make_access):
    """One tap for all that is refused: nothing of it may be left behind."""
    served = MirrorTap(make_access("m"))
    yield served
    served.close()


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_is_none_is_told_why_and_costs_nothing_else(shared, name):
    body, headers, status = REFUSED[name]
    got, before = len(shared.got), shared.outcomes()
    answer, _, text = shared.post(body, **headers)
    assert answer == status, text
    assert 5 < len(text) < 1000
    outcome = ("http", COUNTED[status])
    assert shared.outcomes()[outcome] == before.get(outcome, 0) + 1
    assert len(shared.got) == got
    assert shared.post(request())[1] == "accepted"
    assert len(shared.got) == got + 1


EVENTS = {
    "no event": (request(), {}, 400),
    "an event of another type": (request(), {"ce_type": "com.example.other"}, 422),
    "an event in structured mode": (
        b"{}",
        {"content_type": "application/cloudevents+json"},
        400,
    ),
    "half a gzip": (
        gzip.compress(request())[:-9],
        {"ce_type": REQUEST, "ce_inferenceservicename": "m"},
        400,
    ),
    "a bomb in an event": (
        gzip_bomb(100),
        {"ce_type": REQUEST, "ce_inferenceservicename": "m"},
        400,
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_is_none_is_told_why(shared, name):
    body, headers, status = EVENTS[name]
    before = shared.outcomes()
    answer, _, text = shared.post(body, "/", **headers)
    assert answer == status, text
    outcome = ("cloudevents", COUNTED[status])
    assert shared.outcomes()[outcome] == before.get(outcome, 0) + 1
