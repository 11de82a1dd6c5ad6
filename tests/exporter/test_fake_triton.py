"""FakeTriton unscripted: what it answers, counts and records, seen by foreign clients."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from exporter.testing import (
    HOSTILE_NAMES,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Hung,
    Limits,
    Slow,
    Timings,
    many,
)

M = FakeModel("m", max_batch_size=8)
ONES = np.ones((1, 4), np.float32)
ONES_RAW = ONES.tobytes()
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
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


@pytest.fixture
def fake():
    with FakeTriton([M]) as server:
        yield server


@contextmanager
def stub(fake):
    with grpc.insecure_channel(fake.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@contextmanager
def client(fake):
    with triton.InferenceServerClient(fake.grpc) as connected:
        yield connected


def call(address, method, path, body=None, headers=()):
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def get_json(address, path):
    status, body = call(address, "GET", path)
    assert status == 200, body
    return json.loads(body)


def tensor(name, values, dtype="FP32"):
    given = triton.InferInput(name, list(values.shape), dtype)
    given.set_data_from_numpy(values)
    return given


def infer(fake, model="m", *, values=ONES, request_id="", **more):
    with client(fake) as connected:
        return connected.infer(
            model, [tensor("INPUT0", values)], request_id=request_id, **more
        )


def message(model="m", *, raw=ONES_RAW, shape=(1, 4), dtype="FP32", **more):
    built = pb.ModelInferRequest(model_name=model, **more)
    built.inputs.add(name="INPUT0", datatype=dtype, shape=list(shape))
    built.raw_input_contents.append(raw)
    return built


def infer_json(shape=(1, 4), data=(1, 2, 3, 4), dtype="FP32", **more):
    given = {
        "name": "INPUT0",
        "datatype": dtype,
        "shape": list(shape),
        "data": list(data),
    }
    return json.dumps({"inputs": [given], **more})


def counters(fake, model="m"):
    (row,) = get_json(fake.http, f"/v2/models/{model}/stats")["model_stats"]
    return row


def metric(fake, name, **labels):
    _, page = call(fake.metrics, "GET", "/metrics")
    for line in page.decode().split("\n"):
        found = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line, re.DOTALL)
        if found and found[1] == name:
            have = dict(LABEL.findall(found[2]))
            if labels.items() <= have.items():
                return float(found[3])
    raise AssertionError(f"no {name} with {labels}")


def eventually(holds, what):
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def open_sockets():
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # The listing's own descriptor is gone.
            found.add(str(link.readlink()))
    return {target for target in found if target.startswith("socket:")}


class TestLife:
    def test_three_ports_answer_as_soon_as_it_exists(self, fake):
        with client(fake) as connected:
            assert connected.is_server_live()
            assert connected.is_server_ready()
        assert call(fake.http, "GET", "/v2/health/live") == (200, b"")
        assert call(fake.metrics, "GET", "/metrics")[0] == 200

    def test_stopping_leaves_no_thread_and_no_socket_even_with_calls_that_hang(self):
        threads_before, sockets_before = set(threading.enumerate()), open_sockets()
        fake = FakeTriton([M])
        fake.on("any").reply(Hung())
        idle = http.client.HTTPConnection(fake.http, timeout=10)
        idle.connect()
        channel = grpc.insecure_channel(fake.grpc)
        service = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        hung_rpc = service.ModelInfer.future(message())
        hung_http = socket.create_connection(fake.http.split(":"))
        hung_http.sendall(b"GET /v2 HTTP/1.1\r\n\r\n")
        fake.wait_for("infer")
        fake.wait_for("server_metadata")
        fake.stop()
        assert hung_rpc.exception(timeout=10) is not None
        assert hung_http.recv(100) == b""
        hung_http.close()
        idle.close()
        channel.close()
        for address in (fake.grpc, fake.http, fake.metrics):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address.split(":"))
        eventually(
            lambda: set(threading.enumerate()) <= threads_before,
            f"threads left: {set(threading.enumerate()) - threads_before}",
        )
        eventually(lambda: open_sockets() <= sockets_before, "sockets left")

    def test_it_can_be_stopped_twice(self):
        fake = FakeTriton()
        fake.stop()
        fake.stop()

    def test_while_down_connections_are_refused_and_then_the_same_ports_answer(
        self, fake
    ):
        kept = http.client.HTTPConnection(fake.http, timeout=10)
        kept.request("GET", "/v2/health/live")
        kept.getresponse().read()
        with fake.down():
            for address in (fake.grpc, fake.http, fake.metrics):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(address.split(":"))
            assert kept.sock.recv(1) == b""
        kept.close()
        assert call(fake.http, "GET", "/v2/health/live")[0] == 200
        assert call(fake.metrics, "GET", "/metrics")[0] == 200
        with client(fake) as connected:
            assert connected.is_server_live()

    async def test_it_serves_asynchronous_clients_from_its_own_threads(self, fake):
        async with grpc.aio.insecure_channel(fake.grpc) as channel:
            service = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await service.ServerLive(pb.ServerLiveRequest())).live
        reader, writer = await asyncio.open_connection(*fake.http.split(":"))
        writer.write(b"GET /v2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["name"] == "triton"

    def test_several_run_side_by_side(self):
        with FakeTriton([FakeModel("a")]) as one, FakeTriton([FakeModel("b")]) as two:
            assert get_json(one.http, "/v2/models/a")["name"] == "a"
            assert call(two.http, "GET", "/v2/models/a")[0] == 404

    def test_a_request_larger_than_the_limit_is_refused_on_both_ports(self):
        with FakeTriton([M], limits=Limits(request_bytes=1000)) as fake:
            assert call(fake.http, "POST", "/v2/models/m/infer", b" " * 1001)[0] == 413
            with stub(fake) as service, pytest.raises(grpc.RpcError) as caught:
                service.ModelInfer(message(raw=b" " * 1001))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    def test_connections_above_the_limit_are_closed_unanswered(self):
        with FakeTriton([M], limits=Limits(connections=1)) as fake:
            first = http.client.HTTPConnection(fake.http, timeout=10)
            first.request("GET", "/v2")
            first.getresponse().read()
            with socket.create_connection(fake.http.split(":"), timeout=10) as second:
                assert second.recv(1) == b""
            first.close()


class TestDescriptions:
    MODEL = FakeModel(
        "pair",
        inputs=(
            FakeTensor("X", "INT32", (-1, 3)),
            FakeTensor("S", "BYTES", (1,), optional=True),
        ),
        outputs=(FakeTensor("Y", "BF16", (2,)),),
        versions=("1", "3"),
    )

    def test_metadata_and_configuration_tell_the_same_over_both_protocols(self):
        with FakeTriton([self.MODEL]) as fake, client(fake) as connected:
            for kind, path in (("metadata", ""), ("config", "/config")):
                over_http = get_json(fake.http, f"/v2/models/pair{path}")
                ask = getattr(connected, f"get_model_{kind}")
                over_grpc = ask("pair", as_json=True)
                over_grpc = over_grpc.get("config", over_grpc)
                assert over_http["name"] == over_grpc["name"] == "pair"
                if kind == "metadata":
                    assert over_http["versions"] == over_grpc["versions"] == ["1", "3"]
                    assert over_http["inputs"][0]["shape"] == [-1, -1, 3]
                    assert over_grpc["inputs"][0]["shape"] == ["-1", "-1", "3"]
                    assert over_http["outputs"][0]["datatype"] == "BF16"
                else:
                    assert over_http["input"][1]["optional"] is True
                    assert over_grpc["input"][1]["optional"] is True
                    assert over_http["input"][1]["data_type"] == "TYPE_STRING"
                    assert over_http["max_batch_size"] == over_grpc["max_batch_size"]
                    assert over_http["input"][0]["dims"] == [-1, 3]

    def test_a_model_without_a_batch_axis_shows_its_shape_as_it_is(self):
        model = FakeModel("flat", max_batch_size=0)
        with FakeTriton([model]) as fake:
            metadata = get_json(fake.http, "/v2/models/flat")
            assert metadata["inputs"][0]["shape"] == [4]
            assert "dynamic_batching" not in get_json(
                fake.http, "/v2/models/flat/config"
            )

    def test_the_index_lists_every_version_with_state_and_reason(self):
        broken = FakeModel("broken", ready=False, reason="Internal: no such file")
        with FakeTriton([self.MODEL, broken]) as fake, client(fake) as connected:
            status, body = call(fake.http, "POST", "/v2/repository/index")
            assert status == 200
            assert json.loads(body) == [
                {
                    "name": "broken",
                    "version": "1",
                    "state": "UNAVAILABLE",
                    "reason": "Internal: no such file",
                },
                {"name": "pair", "version": "1", "state": "READY"},
                {"name": "pair", "version": "3", "state": "READY"},
            ]
            over_grpc = connected.get_model_repository_index(as_json=True)
            assert over_grpc["models"] == json.loads(body)
            _, ready = call(
                fake.http, "POST", "/v2/repository/index", '{"ready": true}'
            )
            assert {row["name"] for row in json.loads(ready)} == {"pair"}
            assert not connected.is_server_ready()
            assert call(fake.http, "GET", "/v2/health/ready") == (400, b"")
            assert not connected.is_model_ready("broken")

    def test_readiness_of_versions_and_of_unknown_models(self):
        with FakeTriton([self.MODEL]) as fake, client(fake) as connected:
            assert connected.is_model_ready("pair")
            assert connected.is_model_ready("pair", "3")
            assert not connected.is_model_ready("pair", "2")
            assert not connected.is_model_ready("other")
            ready = "/v2/models/pair/versions/3/ready"
            assert call(fake.http, "GET", ready) == (200, b"")
            status, body = call(fake.http, "GET", "/v2/models/other/ready")
            assert (status, json.loads(body)) == (
                400,
                {"error": "Model version not ready"},
            )

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v2/models/nope", 404),
            ("GET", "/v2/models/m/versions/7", 404),
            ("GET", "/v2/models/nope/stats", 400),
            ("GET", "/v2/models/nope/trace/setting", 400),
            ("GET", "/nope", 404),
            ("GET", "/v2/models/m/", 404),
            ("GET", "/v2/models//ready", 404),
            ("POST", "/v2", 405),
            ("GET", "/v2/models/m/infer", 405),
            ("GET", "/v2/models/%6d", 404),
        ],
    )
    def test_wrong_paths_are_refused_with_the_statuses_of_triton(
        self, fake, method, path, status
    ):
        got, body = call(fake.http, method, path)
        assert got == status
        assert json.loads(body)["error"]

    @pytest.mark.parametrize(
        "raw",
        [
            b"nonsense\r\n\r\n",
            b"GET /v2 SPDY/9\r\n\r\n",
            b"GET /v2 HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        ],
    )
    def test_bytes_that_are_not_http_get_status_400_and_the_end(self, fake, raw):
        with socket.create_connection(fake.http.split(":"), timeout=10) as connection:
            connection.sendall(raw)
            received = b"".join(iter(lambda: connection.recv(4096), b""))
        assert received.startswith(b"HTTP/1.1 400 ")

    def test_a_chunked_request_is_refused_with_411(self, fake):
        connection = http.client.HTTPConnection(fake.http, timeout=10)
        connection.request("POST", "/v2/models/m/infer", iter([b"{}"]))
        assert connection.getresponse().status == 411
        connection.close()

    def test_http_answers_many_requests_on_one_connection(self, fake):
        connection = http.client.HTTPConnection(fake.http, timeout=10)
        connection.connect()
        own = connection.sock
        for _ in range(3):
            connection.request("GET", "/v2")
            assert connection.getresponse().read()
        assert connection.sock is own
        connection.close()


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


class TestCounting:
    TIMED = FakeModel("m", timings=Timings(1000, 20, 300, 4))

    def test_statistics_and_metrics_agree_with_what_was_served(self):
        with FakeTriton([self.TIMED], clock=lambda: 1234.5) as fake:
            infer(fake)
            infer(fake, values=np.ones((3, 4), np.float32))
            call(fake.http, "POST", "/v2/models/m/infer", infer_json())
            row = counters(fake)
            assert row["inference_count"] == 5
            assert row["execution_count"] == 3
            assert row["last_inference"] == 1_234_500
            stats = row["inference_stats"]
            assert stats["success"] == {"count": 3, "ns": 3 * 1324}
            assert stats["fail"] == {"count": 0, "ns": 0}
            assert stats["queue"] == {"count": 3, "ns": 3000}
            assert stats["compute_infer"] == {"count": 3, "ns": 900}
            by_size = {each["batch_size"]: each for each in row["batch_stats"]}
            assert by_size[1]["compute_infer"] == {"count": 2, "ns": 600}
            assert by_size[3]["compute_infer"] == {"count": 1, "ns": 300}
            for name, value in (
                ("nv_inference_request_success", 3),
                ("nv_inference_count", 5),
                ("nv_inference_exec_count", 3),
                ("nv_inference_queue_duration_us", 3),
                ("nv_inference_request_duration_us", 3),
                ("nv_inference_pending_request_count", 0),
            ):
                assert metric(fake, name, model="m", version="1") == value

    def test_statistics_are_the_same_over_grpc(self, fake):
        infer(fake)
        with client(fake) as connected:
            (over_grpc,) = connected.get_inference_statistics("m").model_stats
        row = counters(fake)
        assert over_grpc.inference_count == row["inference_count"] == 1
        assert over_grpc.last_inference == row["last_inference"] > 0
        stats = row["inference_stats"]
        assert over_grpc.inference_stats.success.ns == stats["success"]["ns"] > 0
        assert over_grpc.batch_stats[0].batch_size == 1

    def test_traffic_nobody_sent_counts_an_execution_once_and_its_requests_each(self):
        with FakeTriton([self.TIMED]) as fake:
            fake.served("m", 100, executions=25)
            fake.failed("m", 3, reason="REJECTED")
            fake.failed("m", 2)
            row = counters(fake)
            assert row["inference_count"] == 100
            assert row["execution_count"] == 27
            compute = row["inference_stats"]["compute_infer"]
            assert compute == {"count": 100, "ns": 100 * 300}
            by_size = {each["batch_size"]: each for each in row["batch_stats"]}
            assert by_size[4]["compute_infer"] == {"count": 25, "ns": 25 * 300}
            assert row["inference_stats"]["fail"]["count"] == 5
            failure = "nv_inference_request_failure"
            assert metric(fake, failure, model="m", reason="REJECTED") == 3
            assert metric(fake, failure, model="m", reason="BACKEND") == 2
            assert metric(fake, failure, model="m", reason="OTHER") == 0
            with pytest.raises(ValueError, match="do not divide"):
                fake.served("m", 10, executions=3)

    def test_pending_requests_show_in_the_metrics_while_they_last(self, fake):
        fake.on("infer").reply(Slow(30))
        with stub(fake) as service:
            pending = service.ModelInfer.future(message())
            fake.wait_for("infer")
            gauge = "nv_inference_pending_request_count"
            eventually(lambda: metric(fake, gauge, model="m") == 1, "no pending one")
            pending.cancel()

    def test_further_lines_can_be_shown_on_the_metrics_page(self, fake):
        fake.add_metrics('nv_gpu_power_usage{gpu_uuid="GPU-1"} 0\n')
        assert metric(fake, "nv_gpu_power_usage", gpu_uuid="GPU-1") == 0

    def test_the_metrics_port_knows_one_page(self, fake):
        assert call(fake.metrics, "GET", "/")[0] == 404
        assert call(fake.metrics, "POST", "/metrics")[0] == 405


class TestRepository:
    def test_a_reload_resets_the_statistics_while_the_metrics_go_on(self, fake):
        infer(fake)
        fake.load("m")
        infer(fake)
        assert counters(fake)["inference_count"] == 1
        assert metric(fake, "nv_inference_count", model="m") == 2

    def test_an_unloaded_model_is_listed_unavailable_and_comes_back_at_zero(self, fake):
        infer(fake)
        fake.unload("m", "out of memory")
        assert index(fake) == [("m", "UNAVAILABLE", "out of memory")]
        assert get_json(fake.http, "/v2/models/stats") == {"model_stats": []}
        status, body = call(fake.http, "GET", "/v2/models/m")
        assert status == 404
        assert b"has no available versions" in body
        fake.load("m")
        assert index(fake) == [("m", "READY", "")]
        assert counters(fake)["inference_count"] == 0
        assert metric(fake, "nv_inference_count", model="m") == 0

    def test_models_can_be_loaded_and_unloaded_over_both_protocols(self, fake):
        with client(fake) as connected:
            connected.unload_model("m")
            assert not connected.is_model_ready("m")
            assert call(fake.http, "POST", "/v2/repository/models/m/load")[0] == 200
            assert connected.is_model_ready("m")
            assert call(fake.http, "POST", "/v2/repository/models/m/unload")[0] == 200
            assert not connected.is_model_ready("m")
            with pytest.raises(InferenceServerException, match="failed to load 'x'"):
                connected.load_model("x")

    def test_models_come_and_go_while_it_runs(self, fake):
        fake.add(FakeModel("late"))
        infer(fake, "late")
        assert [name for name, _, _ in index(fake)] == ["late", "m"]
        fake.remove("late")
        assert [name for name, _, _ in index(fake)] == ["m"]
        assert call(fake.http, "GET", "/v2/models/late")[0] == 404

    def test_a_vanished_model_is_listed_ready_and_found_by_no_other_call(self, fake):
        fake.vanish("m")
        assert index(fake) == [("m", "READY", "")]
        assert call(fake.http, "GET", "/v2/models/m")[0] == 404
        assert call(fake.http, "GET", "/v2/models/m/config")[0] == 404
        assert call(fake.http, "GET", "/v2/models/m/ready")[0] == 400
        assert get_json(fake.http, "/v2/models/stats") == {"model_stats": []}
        with pytest.raises(InferenceServerException) as caught:
            infer(fake)
        assert caught.value.status() == "StatusCode.NOT_FOUND"

    def test_500_models_are_listed_counted_and_served_on_every_port(self):
        with FakeTriton(many(500)) as fake, client(fake) as connected:
            listed = connected.get_model_repository_index().models
            assert [each.name for each in listed][:2] == ["model_000", "model_001"]
            assert len(listed) == len(index(fake)) == 500
            assert len(connected.get_inference_statistics().model_stats) == 500
            assert len(get_json(fake.http, "/v2/models/stats")["model_stats"]) == 500
            infer(fake, "model_499")
            assert metric(fake, "nv_inference_count", model="model_499") == 1

    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
    def test_hostile_names_arrive_whole_on_every_port(self, name):
        model = FakeModel(name)
        with FakeTriton([model], decodes_urls=True) as fake, client(fake) as connected:
            (listed,) = connected.get_model_repository_index().models
            assert listed.name == name
            assert connected.get_model_metadata(name).name == name
            assert index(fake) == [(name, "READY", "")]
            infer(fake, name)
            path = "".join(f"%{byte:02x}" for byte in name.encode())
            assert get_json(fake.http, f"/v2/models/{path}")["name"] == name
            assert (
                call(fake.http, "POST", f"/v2/models/{path}/infer", infer_json())[0]
                == 200
            )
            escaped = name.replace("\\", r"\\").replace('"', r"\"")
            escaped = escaped.replace("\n", r"\n")
            assert metric(fake, "nv_inference_count", model=escaped) == 2
            assert {each.model for each in fake.requests if each.model} == {name}


def index(fake):
    status, body = call(fake.http, "POST", "/v2/repository/index")
    assert status == 200
    return [
        (each["name"], each["state"], each.get("reason", ""))
        for each in json.loads(body)
    ]


class TestTraceSettings:
    def test_settings_are_read_changed_and_cleared_over_both_protocols(self, fake):
        with client(fake) as connected:
            before = connected.get_trace_settings(as_json=True)["settings"]
            assert before["trace_rate"] == {"value": ["1000"]}
            assert before["trace_mode"] == {"value": ["triton"]}
            connected.update_trace_settings("m", {"trace_rate": "7"})
            assert get_json(fake.http, "/v2/models/m/trace/setting") == {
                "trace_level": ["OFF"],
                "trace_rate": "7",
                "trace_count": "-1",
                "log_frequency": "0",
                "trace_file": "/traces/trace.json",
                "trace_mode": "triton",
            }
            assert get_json(fake.http, "/v2/trace/setting")["trace_rate"] == "1000"
            body = json.dumps({"trace_level": ["TIMESTAMPS"], "trace_rate": None})
            status, answer = call(fake.http, "POST", "/v2/models/m/trace/setting", body)
            assert status == 200
            assert json.loads(answer)["trace_level"] == ["TIMESTAMPS"]
            assert json.loads(answer)["trace_rate"] == "1000"
            changed = connected.get_trace_settings("m", as_json=True)["settings"]
            assert changed["trace_level"] == {"value": ["TIMESTAMPS"]}

    def test_what_triton_refuses_to_set_is_refused_and_nothing_changes(self, fake):
        path = "/v2/trace/setting"
        before = get_json(fake.http, path)
        for wrong, status in (
            ({"trace_file": "x", "trace_rate": "1"}, 501),
            ({"trace_rate": "often"}, 400),
            ({"trace_level": ["LOUD"]}, 400),
        ):
            assert call(fake.http, "POST", path, json.dumps(wrong))[0] == status
        assert get_json(fake.http, path) == before

    def test_without_a_trace_file_no_level_can_be_switched_on(self):
        with FakeTriton([M], trace_file="") as fake:
            status, body = call(
                fake.http, "POST", "/v2/trace/setting", '{"trace_level":["TIMESTAMPS"]}'
            )
            assert status == 400
            assert b"trace file name is not given" in body


class TestRecords:
    def test_a_request_is_kept_with_id_headers_tensors_and_deadline(self, fake):
        infer(fake, request_id="id-1", headers={"x-key": "v"}, client_timeout=30)
        body = infer_json(id='id"2', parameters={"priority": 2})
        call(fake.http, "POST", "/v2/models/m/infer", body, [("X-Key", "w")])
        first, second = fake.requests
        assert (first.protocol, second.protocol) == ("grpc", "http")
        assert (first.operation, first.model) == ("infer", "m")
        assert (first.request_id, second.request_id) == ("id-1", 'id"2')
        assert (first.headers["x-key"], second.headers["x-key"]) == ("v", "w")
        assert 0 < first.deadline_seconds <= 30
        assert second.deadline_seconds is None
        assert first.at_seconds < second.at_seconds <= time.monotonic()
        (given,) = first.inputs
        assert (given.name, given.dtype, given.shape) == ("INPUT0", "FP32", (1, 4))
        assert given.data == ONES.tobytes()
        assert second.parameters == {"priority": 2}

    def test_only_the_last_records_and_the_first_bytes_are_kept(self):
        big = FakeModel("m", inputs=(FakeTensor("INPUT0", "UINT8", (5000,)),))
        with FakeTriton([big], limits=Limits(kept_requests=2)) as fake:
            with stub(fake) as service:
                for number in range(3):
                    service.ModelInfer(
                        message(
                            raw=bytes(5000),
                            shape=(1, 5000),
                            dtype="UINT8",
                            id=str(number),
                        )
                    )
            assert [each.request_id for each in fake.requests] == ["1", "2"]
            assert fake.received("infer") == 3
            (given,) = fake.requests[0].inputs
            assert (len(given.data), given.size_bytes) == (4096, 5000)

    def test_overlap_is_measured_for_each_model_and_port(self):
        with (
            FakeTriton([FakeModel("a"), FakeModel("b")]) as fake,
            stub(fake) as service,
        ):
            assert fake.max_concurrent == 0
            with fake.on("infer", model="a").reply(Hung()):
                calls = [service.ModelInfer.future(message("a")) for _ in range(3)]
                fake.wait_for("infer", model="a", count=3)
            service.ModelInfer(message("b"))
            assert fake.max_concurrent == 4
            assert fake.concurrency(model="a").peak == 3
            assert fake.concurrency(model="b").peak == 1
            assert fake.concurrency(protocol="http").peak == 0
            for each in calls:
                each.cancel()
            eventually(lambda: fake.concurrency().current == 0, "still in progress")
            fake.forget()
            assert fake.requests == ()
            assert fake.max_concurrent == 0

    def test_one_at_a_time_never_overlaps(self, fake):
        for _ in range(5):
            infer(fake)
        assert fake.max_concurrent == 1

    def test_waiting_ends_with_the_call_or_with_a_timeout_that_says_what_came(
        self, fake
    ):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(fake.wait_for, "infer", model="m", count=2)
            infer(fake)
            infer(fake)
            assert waiting.result(10) == 2
        with pytest.raises(TimeoutError, match="2 infer requests came"):
            fake.wait_for("infer", count=3, timeout_seconds=0.01)

    def test_names_from_outside_get_no_counters_of_their_own(self, fake):
        for number in range(20):
            call(fake.http, "GET", f"/v2/models/unknown{number}")
        assert fake.received("model_metadata") == 20
        assert fake.received("model_metadata", model="unknown1") == 0

    def test_many_clients_at_once_are_all_served_and_counted(self, fake):
        def some(_):
            with stub(fake) as service:
                for _ in range(20):
                    service.ModelInfer(message())
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(some, range(8)))
        assert fake.received("infer") == 160
        assert counters(fake)["inference_stats"]["success"]["count"] == 160
