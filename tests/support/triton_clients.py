"""Foreign clients of a FakeTriton: one call over one of its ports, and what it came back with."""

from __future__ import annotations

import http.client
import json
import re
import time
from contextlib import contextmanager

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from exporter.testing import FakeModel

M = FakeModel("m", max_batch_size=8)
ONES = np.ones((1, 4), np.float32)
ONES_RAW = ONES.tobytes()
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.DOTALL)


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
