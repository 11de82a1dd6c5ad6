"""FakeTriton scripted: every behaviour, on every port it has, seen by foreign clients."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import time
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from exporter.testing import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PYTHON_BACKEND_ERROR,
    QUEUE_FULL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    Body,
    Dripping,
    Dropped,
    EmptyTensor,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Filled,
    Frozen,
    Garbage,
    HalfAnswer,
    Hung,
    MissingOutput,
    NotReady,
    Shifted,
    ShortTensor,
    Slow,
    Status,
    Timings,
    WrongDtype,
    WrongShape,
    Zeroed,
)

ONES = np.ones((1, 4), np.float32)
INFER = json.dumps(
    {
        "inputs": [
            {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1] * 4}
        ]
    }
)
BINARY = json.dumps(
    json.loads(INFER) | {"parameters": {"binary_data_output": True}}
).encode()

BROKEN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}
"""What gRPC's versions make of a connection that stops being HTTP/2."""


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m"), FakeModel("n")]) as server:
        yield server


@contextmanager
def stub(fake):
    with grpc.insecure_channel(fake.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def message(model="m"):
    built = pb.ModelInferRequest(model_name=model)
    built.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 4])
    built.raw_input_contents.append(ONES.tobytes())
    return built


def grpc_infer(fake, model="m", timeout=10):
    with stub(fake) as service:
        return service.ModelInfer(message(model), timeout=timeout)


def grpc_failure(fake, model="m", timeout=10):
    with pytest.raises(grpc.RpcError) as caught:
        grpc_infer(fake, model, timeout)
    return caught.value.code(), caught.value.details()


def numpy_infer(fake):
    given = triton.InferInput("INPUT0", [1, 4], "FP32")
    given.set_data_from_numpy(ONES)
    with triton.InferenceServerClient(fake.grpc) as client:
        return client.infer("m", [given], client_timeout=10)


def call(address, method, path, body=None):
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def http_infer(fake, model="m", body=INFER):
    return call(fake.http, "POST", f"/v2/models/{model}/infer", body)


def statistics(fake, model="m"):
    status, body = call(fake.http, "GET", "/v2/models/stats")
    assert status == 200
    rows = json.loads(body)["model_stats"]
    return next(row for row in rows if row["name"] == model)


def metric(fake, name, model="m"):
    _, page = call(fake.metrics, "GET", "/metrics")
    pattern = rf'^{name}{{model="{model}".*}} (\d+)$'
    return int(re.search(pattern, page.decode(), re.MULTILINE)[1])


def http_request(path="/v2"):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def raw_answer(address, request):
    """Every byte the server sends on one connection, and whether it was reset."""
    host, port = address.split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        while True:
            try:
                data = connection.recv(65_536)
            except ConnectionResetError:
                return received, True
            if not data:
                return received, False
            received += data


class TestTime:
    def test_a_slow_model_is_late_on_both_ports_and_shows_it_in_its_statistics(
        self, fake
    ):
        fake.on("infer", model="m").reply(Slow(0.2))
        for ask in (grpc_infer, http_infer):
            began = time.monotonic()
            ask(fake)
            assert time.monotonic() - began >= 0.2
        grpc_infer(fake, "n")
        stats = statistics(fake)["inference_stats"]
        assert stats["compute_infer"]["ns"] >= 2 * 200_000_000
        assert stats["queue"]["ns"] < 1_000_000
        assert statistics(fake, "n")["inference_stats"]["success"]["ns"] < 1_000_000

    @pytest.mark.parametrize(
        ("phase", "queue", "compute"), [("queue", 1, 0), ("network", 0, 0)]
    )
    def test_the_time_shows_in_the_phase_it_was_scripted_for(
        self, phase, queue, compute
    ):
        model = FakeModel("m", timings=Timings(0, 0, 0, 0))
        with FakeTriton([model]) as fake:
            fake.on("infer").reply(Slow(0.01, phase=phase))
            grpc_infer(fake)
            stats = statistics(fake)["inference_stats"]
            assert stats["queue"]["ns"] == queue * 10_000_000
            assert stats["compute_infer"]["ns"] == compute * 10_000_000

    def test_a_slow_inference_is_counted_after_its_client_has_given_up(self, fake):
        fake.on("infer").reply(Slow(0.2))
        assert grpc_failure(fake, timeout=0.05)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        deadline = time.monotonic() + 10
        while statistics(fake)["inference_count"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @pytest.mark.parametrize(
        ("operation", "path"),
        [
            ("server_ready", "/v2/health/ready"),
            ("model_metadata", "/v2/models/m"),
            ("statistics", "/v2/models/stats"),
        ],
    )
    def test_any_operation_can_be_slow(self, fake, operation, path):
        fake.on(operation).reply(Slow(0.1))
        began = time.monotonic()
        assert call(fake.http, "GET", path)[0] == 200
        assert time.monotonic() - began >= 0.1

    def test_a_hung_call_keeps_its_connection_open_and_is_never_counted(self, fake):
        fake.on("infer").reply(Hung())
        assert grpc_failure(fake, timeout=0.1)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        host, port = fake.http.split(":")
        with socket.create_connection((host, int(port)), timeout=0.2) as connection:
            head = f"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: {len(INFER)}"
            connection.sendall(f"{head}\r\n\r\n{INFER}".encode())
            fake.wait_for("infer", protocol="http")
            with pytest.raises(TimeoutError):
                connection.recv(1)
        deadline = time.monotonic() + 10
        while fake.concurrency().current:
            assert time.monotonic() < deadline, "a hung call outlives its client"
            time.sleep(0.01)
        assert statistics(fake)["inference_stats"]["success"]["count"] == 0

    def test_a_frozen_server_hangs_on_all_three_ports(self, fake):
        fake.on("any").reply(Hung())
        assert grpc_failure(fake, timeout=0.1)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        for address, path in ((fake.http, "/v2"), (fake.metrics, "/metrics")):
            host, port = address.split(":")
            with socket.create_connection((host, int(port)), timeout=0.1) as connection:
                connection.sendall(http_request(path))
                with pytest.raises(TimeoutError):
                    connection.recv(1)

    def test_a_dripping_answer_gets_through_every_single_read_and_takes_long(
        self, fake
    ):
        fake.on("server_metadata").reply(Dripping(0.001))
        host, port = fake.http.split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(http_request())
            received, reads = b"", 0
            while not received.endswith(b'"logging"]}'):
                received += connection.recv(65_536)
                reads += 1
        assert reads > 1
        with stub(fake) as service:
            began = time.monotonic()
            assert service.ServerMetadata(pb.ServerMetadataRequest()).name == "triton"
            assert time.monotonic() - began > 0.1

    def test_a_dripping_answer_outlasts_a_deadline(self, fake):
        fake.on("infer").reply(Dripping(0.05))
        assert grpc_failure(fake, timeout=0.1)[0] is grpc.StatusCode.DEADLINE_EXCEEDED


class TestStatus:
    @pytest.mark.parametrize(
        ("status", "code", "http_status"),
        [
            (UNAVAILABLE, "UNAVAILABLE", 503),
            (INTERNAL, "INTERNAL", 500),
            (INVALID_ARGUMENT, "INVALID_ARGUMENT", 400),
            (NOT_FOUND, "NOT_FOUND", 404),
            (RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED", 429),
            (Status("ABORTED", 418, "teapot"), "ABORTED", 418),
        ],
    )
    def test_every_status_comes_with_its_message_over_both_protocols(
        self, fake, status, code, http_status
    ):
        fake.on("any").reply(status)
        assert grpc_failure(fake) == (grpc.StatusCode[code], status.message)
        got, body = http_infer(fake)
        assert (got, json.loads(body)) == (http_status, {"error": status.message})
        with stub(fake) as service, pytest.raises(grpc.RpcError) as caught:
            service.ModelStatistics(pb.ModelStatisticsRequest())
        assert caught.value.code() is grpc.StatusCode[code]
        assert call(fake.metrics, "GET", "/metrics")[0] == http_status

    def test_http_can_fail_with_the_page_of_a_proxy(self, fake):
        page = b"<html>502 Bad Gateway</html>"
        fake.on("infer").reply(Status("UNAVAILABLE", 502, "x", page, "text/html"))
        assert http_infer(fake) == (502, page)

    def test_an_error_in_a_stream_is_a_message_of_the_stream(self, fake):
        fake.on("infer").reply(INTERNAL)
        with stub(fake) as service:
            (answer,) = service.ModelStreamInfer(iter([message()]), timeout=10)
        assert answer.error_message == INTERNAL.message

    @pytest.mark.parametrize(
        ("status", "success", "fail", "executions", "reason"),
        [
            (INTERNAL, 0, 1, 1, "BACKEND"),
            (QUEUE_FULL, 0, 1, 0, "REJECTED"),
            (PYTHON_BACKEND_ERROR, 1, 0, 1, None),
            (UNAVAILABLE, 0, 0, 0, None),
        ],
        ids=["backend", "queue full", "python backend", "unavailable"],
    )
    def test_a_failed_inference_is_counted_where_triton_counts_it(
        self, fake, status, success, fail, executions, reason
    ):
        fake.on("infer").reply(status)
        grpc_failure(fake)
        row = statistics(fake)
        assert row["inference_stats"]["success"]["count"] == success
        assert row["inference_stats"]["fail"]["count"] == fail
        assert row["execution_count"] == executions
        _, page = call(fake.metrics, "GET", "/metrics")
        failures = dict(
            re.findall(
                r'nv_inference_request_failure\{model="m",reason="(\w+)".*\} (\d+)',
                page.decode(),
            )
        )
        expected = dict.fromkeys(("OTHER", "BACKEND", "CANCELED", "REJECTED"), "0")
        if reason:
            expected[reason] = "1"
        assert failures == expected

    def test_server_and_model_can_say_they_are_not_ready_while_inference_works(
        self, fake
    ):
        fake.on("server_ready").reply(NotReady())
        fake.on("server_live").reply(NotReady())
        fake.on("model_ready", model="m").reply(NotReady())
        with triton.InferenceServerClient(fake.grpc) as client:
            assert not client.is_server_ready()
            assert not client.is_server_live()
            assert not client.is_model_ready("m")
            assert client.is_model_ready("n")
        for path in ("/v2/health/ready", "/v2/health/live", "/v2/models/m/ready"):
            assert call(fake.http, "GET", path)[0] == 400
        grpc_infer(fake)

    def test_everything_says_ready_while_inference_fails(self, fake):
        fake.on("infer").reply(INTERNAL)
        for path in ("/v2/health/ready", "/v2/health/live", "/v2/models/m/ready"):
            assert call(fake.http, "GET", path)[0] == 200
        assert grpc_failure(fake)[0] is grpc.StatusCode.INTERNAL

    def test_a_model_is_there_in_one_call_and_gone_in_the_next(self, fake):
        fake.on("any", model="m").reply(times=1)
        fake.on("any", model="m").reply(NOT_FOUND)
        grpc_infer(fake)
        assert grpc_failure(fake)[0] is grpc.StatusCode.NOT_FOUND
        _, body = call(fake.http, "POST", "/v2/repository/index")
        assert [row["name"] for row in json.loads(body)] == ["m", "n"]
        grpc_infer(fake, "n")


class TestBytes:
    def test_garbage_on_http_and_metrics_is_not_http_and_then_the_end(self, fake):
        fake.on("any").reply(Garbage(b"\x00\xffgarbage"))
        for address, path in ((fake.http, "/v2"), (fake.metrics, "/metrics")):
            received, _ = raw_answer(address, http_request(path))
            assert received == b"\x00\xffgarbage"
            with pytest.raises(http.client.BadStatusLine):
                call(address, "GET", path)

    def test_garbage_on_grpc_breaks_the_connection_and_the_next_one_works(self, fake):
        fake.on("infer").reply(Garbage(), times=1)
        assert grpc_failure(fake)[0] in BROKEN
        assert grpc_infer(fake).outputs

    def test_garbage_on_grpc_arrives_byte_for_byte_and_then_the_end(self, fake):
        fake.on("server_live").reply(Garbage())
        received, _ = raw_answer(fake.grpc, http2_call("ServerLive"))
        assert received.endswith(bytes(range(256)))

    def test_half_an_http_answer_promises_more_than_comes(self, fake):
        _, whole = call(fake.http, "GET", "/v2")
        fake.on("server_metadata").reply(HalfAnswer())
        received, _ = raw_answer(fake.http, http_request())
        head, body = received.split(b"\r\n\r\n")
        assert f"Content-Length: {len(whole)}".encode() in head
        assert body == whole[: len(whole) // 2]
        with pytest.raises(http.client.IncompleteRead):
            call(fake.http, "GET", "/v2")

    def test_half_a_metrics_page_can_be_sent(self, fake):
        fake.on("metrics").reply(HalfAnswer(0.9))
        with pytest.raises(http.client.IncompleteRead) as caught:
            call(fake.metrics, "GET", "/metrics")
        assert caught.value.partial.startswith(b"# HELP")

    def test_half_a_grpc_answer_ends_inside_a_data_frame(self, fake):
        whole = frames(raw_answer_until_trailers(fake, "ServerMetadata"))
        (complete,) = [payload for kind, payload, _ in whole if kind == 0]
        fake.on("server_metadata").reply(HalfAnswer())
        received, _ = raw_answer(fake.grpc, http2_call("ServerMetadata"))
        kind, payload, promised = frames(received)[-1]
        assert kind == 0
        assert promised == len(complete)
        assert payload == complete[: promised // 2]

    def test_clients_see_half_a_grpc_answer_as_unavailable(self, fake):
        fake.on("infer").reply(HalfAnswer(), times=1)
        assert grpc_failure(fake)[0] is grpc.StatusCode.UNAVAILABLE
        assert grpc_infer(fake).outputs

    def test_a_dropped_connection_is_reset_before_the_first_byte(self, fake):
        fake.on("any").reply(Dropped())
        for address, path in ((fake.http, "/v2"), (fake.metrics, "/metrics")):
            assert raw_answer(address, http_request(path)) == (b"", True)
        received, was_reset = raw_answer(fake.grpc, http2_call("ServerLive"))
        assert was_reset
        assert not {0, 1} & {kind for kind, _, _ in frames(received)}
        assert grpc_failure(fake)[0] is grpc.StatusCode.UNAVAILABLE

    def test_a_well_framed_answer_can_hold_anything(self, fake):
        fake.on("any").reply(Body(b"\xff\xff\xff", "application/json"))
        assert call(fake.http, "GET", "/v2") == (200, b"\xff\xff\xff")
        assert call(fake.metrics, "GET", "/metrics") == (200, b"\xff\xff\xff")
        with grpc.insecure_channel(fake.grpc) as channel:
            raw = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            assert raw(message().SerializeToString(), timeout=10) == b"\xff\xff\xff"
        assert grpc_failure(fake)[0] is grpc.StatusCode.INTERNAL


def http2_call(method):
    """A whole gRPC call as bytes (RFC 9113, RFC 7541 6.2.2), its message empty."""
    fields = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/inference.GRPCInferenceService/{method}"),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
    block = b"".join(
        b"\x00"
        + bytes((len(key),))
        + key.encode()
        + bytes((len(value),))
        + value.encode()
        for key, value in fields
    )
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, b"")
        + frame(1, 4, 1, block)
        + frame(0, 1, 1, bytes(5))
    )


def frame(kind, flags, stream, payload):
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream.to_bytes(4, "big") + payload


def frames(data):
    """Frames as (kind, payload that came, length promised)."""
    found = []
    while data:
        promised = int.from_bytes(data[:3], "big")
        found.append((data[3], data[9 : 9 + promised], promised))
        data = data[9 + promised :]
    return found


def raw_answer_until_trailers(fake, method):
    """What comes until the second HEADERS frame, gRPC's trailers."""
    host, port = fake.grpc.split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(http2_call(method))
        while [kind for kind, _, _ in frames(received)].count(1) < 2:
            received += connection.recv(65_536)
    return received


class TestTensors:
    PAIR = FakeModel(
        "m",
        outputs=(FakeTensor("A"), FakeTensor("B"), FakeTensor("I", "INT32", (2,))),
    )

    @pytest.fixture
    def fake(self):
        with FakeTriton([self.PAIR]) as server:
            yield server

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 0.5])
    def test_outputs_can_hold_one_value_everywhere(self, fake, value):
        fake.on("infer").reply(Filled(value))
        answer = numpy_infer(fake)
        for name in ("A", "B"):
            np.testing.assert_array_equal(
                answer.as_numpy(name), np.full((1, 4), value, np.float32)
            )
        integers = answer.as_numpy("I")
        assert (integers == 0).all() if math.isfinite(value) else integers.any()
        _, body = http_infer(fake)
        data = json.loads(body)["outputs"][0]["data"]
        np.testing.assert_array_equal(data, [value] * 4)

    def test_nan_stands_bare_in_json_as_triton_writes_it(self, fake):
        fake.on("infer").reply(Filled(math.nan))
        assert b"[NaN,NaN,NaN,NaN]" in http_infer(fake)[1]

    def test_one_element_of_one_output_can_be_nan(self, fake):
        fake.on("infer").reply(Filled(math.nan, elements=1, output="B"))
        answer = numpy_infer(fake)
        assert np.isnan(answer.as_numpy("B")).tolist() == [[True, False, False, False]]
        assert np.isfinite(answer.as_numpy("A")).all()

    def test_a_wrong_dtype_is_declared_and_encoded(self, fake):
        fake.on("infer").reply(WrongDtype("INT64", output="A"))
        answer = grpc_infer(fake)
        assert [each.datatype for each in answer.outputs] == ["INT64", "FP32", "INT32"]
        assert [len(raw) for raw in answer.raw_output_contents] == [32, 16, 8]

    @pytest.mark.parametrize(
        ("scripted", "shape"),
        [
            (WrongShape(output="A"), [1, 5]),
            (WrongShape((2, 3, 4), output="A"), [2, 3, 4]),
            (WrongShape((), output="A"), []),
            (WrongShape((0, 4), output="A"), [0, 4]),
        ],
    )
    def test_a_wrong_shape_has_as_many_elements(self, fake, scripted, shape):
        fake.on("infer").reply(scripted)
        answer = grpc_infer(fake)
        assert list(answer.outputs[0].shape) == shape
        assert len(answer.raw_output_contents[0]) == 4 * math.prod(shape)
        assert list(answer.outputs[1].shape) == [1, 4]

    def test_an_empty_tensor_is_a_success_with_the_declared_shape_and_no_bytes(
        self, fake
    ):
        fake.on("infer").reply(EmptyTensor())
        answer = grpc_infer(fake)
        assert [list(each.shape) for each in answer.outputs] == [[1, 4], [1, 4], [1, 2]]
        assert list(answer.raw_output_contents) == [b"", b"", b""]
        status, body = http_infer(fake, body=BINARY)
        assert status == 200
        assert b'"shape":[1,4],"parameters":{"binary_data_size":0}' in body
        status, body = http_infer(fake)
        assert status == 500
        assert b"does not match size of output for 'A'" in body
        assert statistics(fake)["inference_stats"]["success"]["count"] == 3

    def test_a_short_tensor_lacks_its_last_bytes(self, fake):
        whole = grpc_infer(fake).raw_output_contents[0]
        fake.on("infer").reply(ShortTensor(3, output="A"))
        assert grpc_infer(fake).raw_output_contents[0] == whole[:-3]

    def test_an_output_can_be_missing(self, fake):
        fake.on("infer").reply(MissingOutput("A"))
        assert [each.name for each in grpc_infer(fake).outputs] == ["B", "I"]
        fake.on("infer").reply(MissingOutput())
        assert not grpc_infer(fake).outputs

    def test_faults_combine_in_order_and_with_time(self, fake):
        fake.on("infer").reply(
            Slow(0.05), WrongShape((3,), output="A"), Filled(7, output="A")
        )
        began = time.monotonic()
        answer = numpy_infer(fake)
        assert time.monotonic() - began >= 0.05
        assert answer.as_numpy("A").tolist() == [7, 7, 7]

    def test_streamed_answers_are_spoilt_too(self, fake):
        fake.on("infer").reply(EmptyTensor())
        with stub(fake) as service:
            (answer,) = service.ModelStreamInfer(iter([message()]), timeout=10)
        assert list(answer.infer_response.raw_output_contents) == [b""] * 3

    def test_text_outputs_are_retyped_and_reshaped_but_not_filled(self):
        model = FakeModel("m", outputs=(FakeTensor("T", "BYTES", (3,)),))
        with FakeTriton([model]) as fake:
            fake.on("infer").reply(Filled(1.0))
            words = numpy_infer(fake).as_numpy("T").ravel().tolist()
            assert all(word.startswith(b"word-") for word in words)
            fake.on("infer").reply(WrongShape((2,)))
            assert numpy_infer(fake).as_numpy("T").tolist() == words[:2]
            fake.on("infer").reply(WrongDtype("FP32"))
            assert numpy_infer(fake).as_numpy("T").dtype == np.float32


class TestCounters:
    def test_frozen_statistics_stay_while_requests_are_served(self, fake):
        grpc_infer(fake)
        fake.on("statistics").reply(Frozen())
        before = statistics(fake)
        grpc_infer(fake)
        assert statistics(fake) == before
        assert metric(fake, "nv_inference_count") == 2
        fake.behave()
        assert statistics(fake)["inference_count"] == 2

    def test_statistics_go_backwards_for_one_model_whichever_way_they_are_asked(
        self, fake
    ):
        fake.served("m", 10)
        fake.served("n", 10)
        fake.on("statistics", model="m").reply(Shifted(-3))
        assert statistics(fake)["inference_count"] == 7
        assert statistics(fake, "n")["inference_count"] == 10
        _, body = call(fake.http, "GET", "/v2/models/m/stats")
        assert json.loads(body)["model_stats"][0]["inference_count"] == 7
        with triton.InferenceServerClient(fake.grpc) as client:
            rows = client.get_inference_statistics().model_stats
        assert [row.inference_count for row in rows] == [7, 10]

    @pytest.mark.parametrize(("by", "shown"), [(-100, 0), (2**64, 2**64 - 1)])
    def test_shifted_counters_stay_what_the_wire_can_hold(self, fake, by, shown):
        fake.served("m", 10)
        fake.on("statistics").reply(Shifted(by))
        assert statistics(fake)["inference_count"] == shown
        with triton.InferenceServerClient(fake.grpc) as client:
            row = client.get_inference_statistics("m").model_stats[0]
        assert row.inference_count == shown

    def test_metrics_stay_at_zero_while_the_statistics_count(self, fake):
        fake.on("metrics").reply(Zeroed())
        grpc_infer(fake)
        assert metric(fake, "nv_inference_request_success") == 0
        assert statistics(fake)["inference_count"] == 1

    def test_metrics_of_one_model_can_freeze(self, fake):
        fake.served("m", 1)
        fake.on("metrics", model="m").reply(Frozen())
        fake.served("m", 1)
        fake.served("n", 1)
        assert metric(fake, "nv_inference_count") == 1
        assert metric(fake, "nv_inference_count", "n") == 1
        assert statistics(fake)["inference_count"] == 2

    def test_a_model_added_after_the_freeze_is_shown_as_it_is(self, fake):
        fake.on("statistics").reply(Frozen())
        fake.add(FakeModel("late"))
        fake.served("late", 5)
        assert statistics(fake, "late")["inference_count"] == 5

    def test_each_model_keeps_its_own_falsification(self, fake):
        fake.served("m", 10)
        fake.served("n", 10)
        fake.on("statistics", model="m").reply(Zeroed())
        fake.on("statistics", model="n").reply(Shifted(1))
        assert statistics(fake, "m")["inference_count"] == 0
        assert statistics(fake, "n")["inference_count"] == 11

    def test_counters_can_be_reset_as_by_a_restart(self, fake):
        grpc_infer(fake)
        fake.reset_counters()
        assert statistics(fake)["inference_count"] == 0
        assert metric(fake, "nv_inference_count") == 0


class TestScript:
    def test_limited_replies_are_used_up_in_order_and_then_it_behaves_again(self, fake):
        fake.on("infer").reply(UNAVAILABLE, times=2)
        fake.on("infer").reply(INTERNAL, times=1)
        codes = [grpc_failure(fake)[0].name for _ in range(3)]
        assert codes == ["UNAVAILABLE", "UNAVAILABLE", "INTERNAL"]
        assert grpc_infer(fake).outputs

    def test_limited_replies_come_before_lasting_ones(self, fake):
        fake.on("infer").reply(INTERNAL, times=1)
        fake.on("infer").reply(UNAVAILABLE)
        codes = [grpc_failure(fake)[0].name for _ in range(3)]
        assert codes == ["INTERNAL", "UNAVAILABLE", "UNAVAILABLE"]

    def test_the_latest_lasting_reply_wins(self, fake):
        fake.on("any").reply(UNAVAILABLE)
        fake.on("infer", model="m").reply(INTERNAL)
        assert grpc_failure(fake, "m")[0] is grpc.StatusCode.INTERNAL
        assert grpc_failure(fake, "n")[0] is grpc.StatusCode.UNAVAILABLE
        fake.on("infer", model="m").reply()
        assert grpc_infer(fake, "m").outputs

    def test_a_reply_can_be_for_one_port(self, fake):
        fake.on("infer", protocol="http").reply(INTERNAL)
        assert http_infer(fake)[0] == 500
        assert grpc_infer(fake).outputs

    def test_a_reply_can_last_for_a_block_and_tells_how_often_it_was_used(self, fake):
        with fake.on("infer").reply(INTERNAL) as rule:
            grpc_failure(fake)
            grpc_failure(fake)
        assert rule.used == 2
        assert grpc_infer(fake).outputs
        rule.remove()

    def test_the_script_changes_while_calls_are_in_progress(self, fake):
        fake.on("infer").reply(Hung())
        with stub(fake) as service:
            hung = service.ModelInfer.future(message(), timeout=30)
            fake.wait_for("infer")
            fake.behave()
            assert service.ModelInfer(message(), timeout=10).outputs
            assert not hung.done()
            hung.cancel()

    @pytest.mark.parametrize(
        ("operation", "behaviour", "words"),
        [
            ("statistics", Filled(0.0), "Filled cannot be shown by 'statistics'"),
            ("infer", Frozen(), "only by metrics, statistics"),
            ("any", Zeroed(), "Zeroed cannot be shown by 'any'"),
            ("infer", NotReady(), "only by model_ready, server_live, server_ready"),
        ],
    )
    def test_a_behaviour_the_operation_cannot_show_is_refused_at_once(
        self, fake, operation, behaviour, words
    ):
        with pytest.raises(ValueError, match=words):
            fake.on(operation).reply(behaviour)
