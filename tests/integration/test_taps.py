"""What a real Triton is asked and answers, as proxies and KServe's logger pass it on."""

from __future__ import annotations

import http.client
import json

import numpy as np
import pytest
from monitoring import free_port
from waiting import patience

from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton

MODEL = "double"
X = np.ones((2, 8), np.float32)
TYPES = "org.kubeflow.serving.inference."


def exchange(address, path, body, headers):
    """One request: the answer's body, which must be there."""
    connection = http.client.HTTPConnection(*address, timeout=patience(20))
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        found = answer.read()
        assert answer.status == 200, found
        return found
    finally:
        connection.close()


def bodies():
    """A request as JSON, and by the binary tensor extension both ways."""
    tensor = {"name": "x", "shape": list(X.shape), "datatype": "FP32"}
    plain = {"id": "r", "inputs": [{**tensor, "data": X.tolist()}]}
    sized = {**tensor, "parameters": {"binary_data_size": X.nbytes}}
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    head = json.dumps({"id": "r", "inputs": [sized], "outputs": [wanted]}).encode()
    return [
        (json.dumps(plain).encode(), {"content-type": "application/json"}),
        (
            head + X.tobytes(),
            {
                "content-type": "application/octet-stream",
                "inference-header-content-length": str(len(head)),
            },
        ),
    ]


def logged(body, kind, content_type):
    """What KServe's logger makes of a body: the other headers are lost."""
    return body, {
        "content-type": content_type,
        "ce-specversion": "1.0",
        "ce-type": TYPES + kind,
        "ce-id": "4711",
        "ce-source": "http://localhost:9081/",
        "ce-inferenceservicename": MODEL,
        "ce-namespace": "default",
        "ce-component": "predictor",
        "ce-endpoint": "default",
        "ce-metadata": "{}",
    }


def test_requests_and_responses_of_a_real_server_are_read_on_every_road(
    playground, start_sidecar, settings
):
    port, grpc_port = free_port(), free_port()
    unlimited = {"samples_per_second": 1e5, "max_samples_per_second": 1e5}
    sidecar = start_sidecar(
        settings(
            playground,
            listen={
                "address": "127.0.0.1",
                "port": 0,
                "tap": {"port": port, "grpc_port": grpc_port},
            },
            drift=[{"models": MODEL, "learn": {"rows": 500, "seconds": 1}}],
            collectors=[
                {"kind": "server", "interval_seconds": 0.5},
                {"kind": "mirror", "interval_seconds": 0.2, "grpc": True, **unlimited},
            ],
            probes=[],
        )
    )
    host, _, triton_port = playground.http.rpartition(":")
    triton, tap = (host, int(triton_port)), ("127.0.0.1", port)
    path = f"/v2/models/{MODEL}/infer"
    mirrored = GrpcClient(f"127.0.0.1:{grpc_port}")
    message = InferRequest(MODEL, "", "r", {"x": X}, {"x": "FP32"})

    def watched(page):
        # From when on drift watches the model is its own affair.
        exchange(tap, path, *bodies()[0])
        return page.sum("tritonwatch_tap_samples_total", source="http") > 0

    sidecar.wait(watched, 30)
    for body, headers in bodies():
        answer = exchange(triton, path, body, headers)
        exchange(tap, path, body, headers)
        exchange(tap, "/", *logged(body, "request", headers["content-type"]))
        exchange(tap, "/", *logged(answer, "response", headers["content-type"]))
        mirrored.infer(message, timeout_seconds=20)
    mirrored.close()

    def samples(page, source):
        name = "tritonwatch_tap_samples_total"
        return {
            labels["direction"]: value
            for labels, value in page.all(name, model=MODEL, source=source)
        }

    page = sidecar.wait(
        lambda page: (
            samples(page, "cloudevents") == {"request": 2, "response": 2}
            and samples(page, "grpc") == {"request": 2}
        )
    )
    refused = {"malformed", "unsupported", "too_large", "overloaded", "timeout"}
    refused |= {"aborted", "too_large_or_aborted"}
    outcomes = page.label("tritonwatch_tap_requests_total", "outcome")
    assert not outcomes & refused
