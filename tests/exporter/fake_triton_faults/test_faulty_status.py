"""FakeTriton scripted to fail: every status, and readiness that lies."""

from __future__ import annotations

import json
import re

import grpc
import pytest
import tritonclient.grpc as triton
from fault_clients import grpc_failure, grpc_infer, http_infer, statistics
from triton_clients import call, message, stub
from tritonclient.grpc import service_pb2 as pb

from exporter.testing import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PYTHON_BACKEND_ERROR,
    QUEUE_FULL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    NotReady,
    Status,
)


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
