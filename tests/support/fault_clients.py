"""Foreign clients of a FakeTriton that misbehaves: what they got, or how it failed."""

from __future__ import annotations

import json
import re
import socket

import grpc
import pytest
from triton_clients import ONES, call, client, message, stub, tensor

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


def grpc_infer(fake, model="m", timeout=10):
    with stub(fake) as service:
        return service.ModelInfer(message(model), timeout=timeout)


def grpc_failure(fake, model="m", timeout=10):
    with pytest.raises(grpc.RpcError) as caught:
        grpc_infer(fake, model, timeout)
    return caught.value.code(), caught.value.details()


def numpy_infer(fake):
    with client(fake) as connected:
        return connected.infer("m", [tensor("INPUT0", ONES)], client_timeout=10)


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
