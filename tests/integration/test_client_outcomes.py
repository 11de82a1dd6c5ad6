"""Failures that clients of the shipped nginx and Envoy see are counted exactly, those
that Triton counts as successes too."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import time
from pathlib import Path

import grpc
import pytest
from monitoring import free_port
from proxies import Envoy, Nginx, envoy_binary
from requirements import require
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.kserve import service_pb2, service_pb2_grpc

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[1] / "data" / "models_erring"
RIGHT, RAISES, ANSWERS_AN_ERROR = 0.0, 1.0, 2.0
MIXED = (RIGHT,) * 25 + (ANSWERS_AN_ERROR,) * 40 + (RAISES,) * 5
OBJECTIVE = {
    "kind": "availability",
    "name": "answered",
    "objective_ratio": 0.99,
    "source": "access_log",
}
METRIC = "triton_client_requests_total"


@pytest.fixture(scope="module")
def erring():
    with EmbeddedTriton(MODELS) as triton:
        yield triton


def statuses_over_http(port, values, path="/v2/models/erring/infer"):
    """What a client that is not ours is answered."""
    found = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(30))
    with contextlib.closing(connection):
        for value in values:
            x = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [value]}
            body = json.dumps({"id": "client", "inputs": [x]})
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
            found.append(answer.status == 200)
    return found


def statuses_over_grpc(port, values, version="", request_id="client"):
    """The same over gRPC."""
    found = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for value in values:
            request = service_pb2.ModelInferRequest(
                model_name="erring", model_version=version, id=request_id
            )
            request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
            request.raw_input_contents.append(struct.pack("<f", value))
            try:
                stub.ModelInfer(request, timeout=patience(30))
            except grpc.RpcError:
                found.append(False)
            else:
                found.append(True)
    return found


def through(proxy, erring, settings, **changes):
    """A configuration that probes through the proxy and reads its access log."""
    config = settings(erring, probe={"overrides": probing(RIGHT)}, **changes)
    config["collectors"].append(
        {
            "kind": "access_log",
            "paths": [str(proxy.access_log)],
            "interval_seconds": 0.5,
        }
    )
    config["target"]["http"] = f"127.0.0.1:{proxy.port}"
    return config


def probing(value):
    return {"erring": {"inputs": {"x": {"values": [value]}}}}


def outcomes(page):
    return {
        outcome: page.value(METRIC, model="erring", version="1", outcome=outcome)
        for outcome in ("success", "failure", "abandoned")
    }


def settled(sidecar, requests):
    """The page when so many requests are counted, and a second later."""
    sidecar.wait(lambda page: page.sum(METRIC) >= requests)
    time.sleep(1.5)
    return sidecar.page()


def assert_triton_hides_them(page):
    """The reason for all this: Triton's own count of failures."""
    assert page.sum("triton_requests_total", outcome="failure") <= 5


def test_failures_that_clients_of_nginx_see_are_counted_exactly(
    erring, settings, start_sidecar, tmp_path_factory
):
    require("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    with contextlib.closing(
        Nginx(folder, erring.http, f"127.0.0.1:{free_port()}")
    ) as proxy:
        statuses_over_http(proxy.port, (ANSWERS_AN_ERROR,) * 3)
        sidecar = start_sidecar(through(proxy, erring, settings, slos=[OBJECTIVE]))
        page = sidecar.wait(lambda page: page.all(METRIC))
        assert outcomes(page) == {"success": 0, "failure": 0, "abandoned": 0}
        seen = statuses_over_http(proxy.port, MIXED)
        versioned = "/v2/models/erring/versions/1/infer?a=b"
        seen += statuses_over_http(proxy.port, (RIGHT, ANSWERS_AN_ERROR), versioned)
        statuses_over_http(proxy.port, (RIGHT,) * 4, "/v2/models/stranger/infer")
        assert (seen.count(True), seen.count(False)) == (26, 46)
        page = settled(sidecar, 72)
    assert outcomes(page) == {"success": 26, "failure": 46, "abandoned": 0}
    lines = "tritonwatch_access_log_lines_total"
    assert page.value(lines, outcome="own") > 0
    assert page.value(lines, outcome="unknown_model") == 4
    assert page.value(lines, outcome="malformed") == 0
    assert page.value(lines, outcome="other") == 0
    assert_triton_hides_them(page)
    page = sidecar.wait(lambda page: page.sum("triton_slo_events_total") >= 72)
    assert page.value("triton_slo_events_total", outcome="good") == 26
    assert page.value("triton_slo_events_total", outcome="bad") == 46


def test_failures_that_clients_of_envoy_see_are_counted_exactly(
    erring, settings, start_sidecar, tmp_path_factory
):
    envoy_binary()
    taps = free_port(), free_port()
    folder = tmp_path_factory.mktemp("envoy")
    with contextlib.closing(Envoy(folder, erring, taps)) as proxy:
        config = through(proxy, erring, settings)
        config["target"]["grpc"] = f"127.0.0.1:{proxy.grpc_port}"
        sidecar = start_sidecar(config)
        sidecar.wait(lambda page: page.all(METRIC))
        seen = statuses_over_http(proxy.port, MIXED)
        seen += statuses_over_grpc(proxy.grpc_port, MIXED)
        seen += statuses_over_grpc(proxy.grpc_port, (RIGHT, ANSWERS_AN_ERROR), "1")
        # Of many chunks, the first of which names the model.
        seen += statuses_over_grpc(proxy.grpc_port, (RIGHT,), request_id="x" * 2**21)
        assert (seen.count(True), seen.count(False)) == (52, 91)
        page = settled(sidecar, 143)
        assert "error" not in proxy.log
    assert outcomes(page) == {"success": 52, "failure": 91, "abandoned": 0}
    lines = "tritonwatch_access_log_lines_total"
    assert page.value(lines, outcome="own") > 0
    for outcome in ("unknown_model", "malformed", "other"):
        assert page.value(lines, outcome=outcome) == 0


@pytest.mark.parametrize("kind", [Nginx, Envoy])
def test_a_client_that_leaves_before_the_answer_saw_no_failure(
    playground, settings, start_sidecar, tmp_path_factory, kind
):
    folder = tmp_path_factory.mktemp("proxy")
    if kind is Nginx:
        require("nginx")
        made = Nginx(folder, playground.http, f"127.0.0.1:{free_port()}")
    else:
        envoy_binary()
        made = Envoy(folder, playground, (free_port(), free_port()))
    with contextlib.closing(made) as proxy:
        sidecar = start_sidecar(through(proxy, playground, settings))
        sidecar.wait(lambda page: page.all(METRIC, model="sleepy"))
        x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
        body = json.dumps({"inputs": [x], "parameters": {"delay_ms": 3000}})
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", proxy.port), 10) as client:
                head = f"Host: x\r\nContent-Length: {len(body)}\r\n\r\n"
                start = "POST /v2/models/sleepy/infer HTTP/1.1\r\n"
                client.sendall(f"{start}{head}{body}".encode())
                time.sleep(0.3)
        page = sidecar.wait(lambda page: page.sum(METRIC, model="sleepy") >= 3)
        assert page.value(METRIC, model="sleepy", outcome="abandoned") == 3
