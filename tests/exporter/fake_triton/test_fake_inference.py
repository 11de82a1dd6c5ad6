"""Inference on FakeTriton: every type over every protocol, streams, and requests that do not fit."""

from __future__ import annotations

import http.client
import json
import math
import re
import struct

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from triton_clients import (
    ONES,
    call,
    client,
    counters,
    infer,
    infer_json,
    message,
    stub,
    tensor,
)
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from exporter.testing import FakeModel, FakeTensor, FakeTriton

EVERY_DTYPE = [
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BF16",
    "BYTES",
]


class TestInference:
    @pytest.mark.parametrize("dtype", EVERY_DTYPE)
    def test_every_type_goes_in_and_out_alike_over_grpc_and_binary_http(self, dtype):
        model = FakeModel(
            "m",
            inputs=(FakeTensor("INPUT0", dtype, (3,)),),
            outputs=(FakeTensor("OUTPUT0", dtype, (5,)),),
        )
        size = {"BOOL": 1, "BF16": 2, "FP16": 2, "BYTES": 0}.get(
            dtype, int(re.sub(r"\D", "", dtype) or 0) // 8
        )
        raw = b"".join(struct.pack("<I", 2) + b"ab" for _ in range(6))
        raw = raw if dtype == "BYTES" else bytes(6 * size)
        with FakeTriton([model]) as fake, stub(fake) as service:
            answer = service.ModelInfer(message(raw=raw, shape=(2, 3), dtype=dtype))
            (output,) = answer.outputs
            assert (output.name, output.datatype) == ("OUTPUT0", dtype)
            assert list(output.shape) == [2, 5]
            (data,) = answer.raw_output_contents
            if dtype == "BYTES":
                assert len(split_bytes(data)) == 10
            else:
                assert len(data) == 10 * size
            assert any(data)
            assert post_binary(fake, dtype, (2, 3), raw) == (dtype, [2, 5], data)

    @pytest.mark.parametrize(
        "dtype", [each for each in EVERY_DTYPE if each not in ("FP16", "BF16")]
    )
    def test_json_over_http_says_the_same_as_grpc(self, dtype):
        model = FakeModel(
            "m",
            inputs=(FakeTensor("INPUT0", "FP32", (4,)),),
            outputs=(FakeTensor("OUTPUT0", dtype, (5,)),),
        )
        with FakeTriton([model]) as fake:
            binary = infer(fake, values=np.array([[1, 2, 3, 4]], np.float32))
            status, body = call(fake.http, "POST", "/v2/models/m/infer", infer_json())
            assert status == 200
            (output,) = json.loads(body)["outputs"]
            expected = binary.as_numpy("OUTPUT0").ravel().tolist()
            if dtype == "BYTES":
                expected = [value.decode() for value in expected]
            assert output["data"] == expected
            assert (output["datatype"], output["shape"]) == (dtype, [1, 5])

    @pytest.mark.parametrize("dtype", ["FP16", "BF16"])
    def test_half_precision_is_refused_in_json_as_triton_does(self, dtype):
        model = FakeModel("m", outputs=(FakeTensor("OUTPUT0", dtype),))
        with FakeTriton([model]) as fake:
            status, body = call(fake.http, "POST", "/v2/models/m/infer", infer_json())
            assert status == 400
            assert b"JSON is not supported" in body

    def test_the_same_inputs_get_the_same_outputs_and_others_others(self, fake):
        first = infer(fake).as_numpy("OUTPUT0")
        again = infer(fake).as_numpy("OUTPUT0")
        other = infer(fake, values=ONES * 2).as_numpy("OUTPUT0")
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        assert np.isfinite(first).all()
        assert len(np.unique(first)) == 4

    def test_typed_contents_are_read_like_raw_ones(self, fake):
        typed = pb.ModelInferRequest(model_name="m")
        given = typed.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 4])
        given.contents.fp32_contents.extend([1, 1, 1, 1])
        with stub(fake) as service:
            assert (
                service.ModelInfer(typed).raw_output_contents
                == service.ModelInfer(message()).raw_output_contents
            )

    def test_a_model_can_be_given_its_own_function(self):
        def doubled(inputs):
            return {"OUTPUT0": inputs["INPUT0"] * 2}

        with FakeTriton([FakeModel("m", answer=doubled)]) as fake:
            values = np.array([[1, 2, 3, 4]], np.float32)
            answer = infer(fake, values=values).as_numpy("OUTPUT0")
            np.testing.assert_array_equal(answer, values * 2)

    @pytest.mark.parametrize(
        ("dtype", "raw"),
        [
            ("BF16", struct.pack("<4H", 0x3F80, 0xC000, 0x7F80, 0x0001)),
            ("FP16", struct.pack("<4e", 1.0, -2.0, math.inf, 0.1)),
            ("BOOL", b"\1\0\1\1"),
            ("INT8", struct.pack("<4b", -128, -1, 0, 127)),
            ("UINT64", struct.pack("<4Q", 2**64 - 1, 0, 1, 2**53 + 1)),
            (
                "BYTES",
                b"".join(map(struct.pack, ["<I3s"] * 4, [3] * 4, [b"\0\xff\n"] * 4)),
            ),
        ],
    )
    def test_values_pass_through_a_function_of_the_model_bit_by_bit(self, dtype, raw):
        model = FakeModel(
            "m",
            inputs=(FakeTensor("INPUT0", dtype),),
            outputs=(FakeTensor("OUTPUT0", dtype),),
            answer=lambda inputs: {"OUTPUT0": inputs["INPUT0"]},
        )
        with FakeTriton([model]) as fake, stub(fake) as service:
            answer = service.ModelInfer(message(raw=raw, dtype=dtype))
        assert list(answer.raw_output_contents) == [raw]

    def test_free_axes_take_the_sizes_of_the_input(self):
        model = FakeModel(
            "m",
            inputs=(FakeTensor("INPUT0", "FP32", (-1, 2)),),
            outputs=(FakeTensor("OUTPUT0", "FP32", (-1, 3)),),
        )
        with FakeTriton([model]) as fake:
            values = np.ones((2, 7, 2), np.float32)
            answer = infer(fake, values=values)
            assert answer.as_numpy("OUTPUT0").shape == (2, 7, 3)

    def test_only_the_outputs_asked_for_come(self):
        model = FakeModel("m", outputs=(FakeTensor("A"), FakeTensor("B")))
        with FakeTriton([model]) as fake:
            answer = infer(fake, outputs=[triton.InferRequestedOutput("B")])
            assert answer.as_numpy("A") is None
            assert answer.as_numpy("B").shape == (1, 4)

    @pytest.mark.parametrize(
        ("wrong", "status", "http_status", "words"),
        [
            ({"model": "nope"}, "NOT_FOUND", 404, "unknown model: 'nope'"),
            ({"dtype": "INT32"}, "INVALID_ARGUMENT", 400, "expects 'FP32'"),
            (
                {"shape": (1, 5), "raw": bytes(20)},
                "INVALID_ARGUMENT",
                400,
                "Expected [-1,4], got [1,5]",
            ),
            ({"shape": (4,)}, "INVALID_ARGUMENT", 400, "Expected [-1,4], got [4]"),
            (
                {"shape": (9, 4), "raw": bytes(144)},
                "INVALID_ARGUMENT",
                400,
                "batch-size must be <= 8",
            ),
            ({"raw": b"123"}, "INVALID_ARGUMENT", 400, "Expected 16, got 3"),
            ({"raw": bytes(17)}, "INVALID_ARGUMENT", 400, "Expected 16, got 17"),
            ({"dtype": "FP31"}, "INVALID_ARGUMENT", 400, "invalid datatype"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_request_that_does_not_fit_is_refused_and_not_counted(
        self, fake, wrong, status, http_status, words
    ):
        with stub(fake) as service, pytest.raises(grpc.RpcError) as caught:
            service.ModelInfer(message(**wrong))
        assert caught.value.code() is grpc.StatusCode[status]
        assert words in caught.value.details()
        given = {"model": "m", "dtype": "FP32", "shape": (1, 4), "raw": ONES.tobytes()}
        given |= wrong
        answered, body = binary_call(
            fake, given["model"], given["dtype"], given["shape"], given["raw"]
        )
        assert answered == http_status
        assert words in json.loads(body)["error"]
        assert counters(fake)["inference_stats"]["fail"]["count"] == 0

    def test_wrong_names_and_missing_inputs_are_told_apart(self, fake):
        with client(fake) as connected:
            for inputs, words in (
                ([tensor("Z", ONES)], "unexpected inference input 'Z'"),
                ([], "missing required input(s) ['INPUT0']"),
            ):
                with pytest.raises(InferenceServerException, match=re.escape(words)):
                    connected.infer("m", inputs)
            wanted = [triton.InferRequestedOutput("W")]
            with pytest.raises(InferenceServerException, match="output 'W'"):
                connected.infer("m", [tensor("INPUT0", ONES)], outputs=wanted)

    @pytest.mark.parametrize(
        "body",
        [
            b"zz",
            b"[]",
            b'{"inputs": 3}',
            b'{"inputs": [{}]}',
            infer_json(data=[1]).encode(),
            b"[" * 100_000,
        ],
    )
    def test_json_that_is_no_inference_is_refused_and_the_port_lives_on(
        self, fake, body
    ):
        status, answer = call(fake.http, "POST", "/v2/models/m/infer", body)
        assert status in (400, 500)
        assert json.loads(answer)["error"]
        assert call(fake.http, "POST", "/v2/models/m/infer", infer_json())[0] == 200

    def test_a_decoupled_model_streams_its_responses_and_nothing_else(self):
        model = FakeModel("m", decoupled=True, responses=3)
        with FakeTriton([model]) as fake, stub(fake) as service:
            asked = message(id="s")
            asked.parameters["triton_enable_empty_final_response"].bool_param = True
            answers = [each.infer_response for each in stream(service, asked)]
            assert [each.id for each in answers] == ["s"] * 4
            assert [len(each.outputs) for each in answers] == [1, 1, 1, 0]
            finals = [each.parameters["triton_final_response"] for each in answers]
            assert [each.bool_param for each in finals] == [False] * 3 + [True]
            assert len({each.raw_output_contents[0] for each in answers[:3]}) == 3
            with pytest.raises(grpc.RpcError) as caught:
                service.ModelInfer(asked)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert call(fake.http, "POST", "/v2/models/m/infer", infer_json())[0] == 501

    def test_a_stream_carries_errors_as_messages_and_goes_on(self, fake):
        with stub(fake) as service:
            wrong, right = message(dtype="INT32", id="w"), message(id="r")
            first, second = stream(service, wrong, right)
        assert "expects 'FP32'" in first.error_message
        assert (first.infer_response.id, second.infer_response.id) == ("w", "r")
        assert not second.error_message


def stream(service, *messages):
    return list(service.ModelStreamInfer(iter(messages), timeout=10))


def split_bytes(data):
    items, place = [], 0
    while place < len(data):
        (size,) = struct.unpack_from("<I", data, place)
        items.append(data[place + 4 : place + 4 + size])
        assert len(items[-1]) == size
        place += 4 + size
    return items


def binary_call(fake, model, dtype, shape, raw):
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": dtype,
                    "shape": list(shape),
                    "parameters": {"binary_data_size": len(raw)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    connection = http.client.HTTPConnection(fake.http, timeout=10)
    connection.request(
        "POST",
        f"/v2/models/{model}/infer",
        header + raw,
        {"Inference-Header-Content-Length": str(len(header))},
    )
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        return response.status, body
    size = int(response.headers["Inference-Header-Content-Length"])
    return json.loads(body[:size]), body[size:]


def post_binary(fake, dtype, shape, raw):
    document, data = binary_call(fake, "m", dtype, shape, raw)
    (output,) = document["outputs"]
    assert output["parameters"]["binary_data_size"] == len(data)
    return output["datatype"], output["shape"], data
