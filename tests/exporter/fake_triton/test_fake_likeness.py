"""FakeTriton beside the real Triton: the same requests, the same answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import re

import grpc
import numpy as np
import pytest
from fake_triton import FakeModel, FakeTensor, FakeTriton
from google.protobuf.json_format import MessageToDict
from requirements import require_triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [4] }]
dynamic_batching {}
instance_group [{ kind: KIND_CPU count: 1 }]
"""
DOUBLE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("Y", x * 2)]))
        return answers
"""


def double(inputs):
    with np.errstate(over="ignore"):
        return {"Y": inputs["X"] * 2}


MODEL = FakeModel("m", (FakeTensor("X"),), (FakeTensor("Y"),), answer=double)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The real server and the fake, with the same model."""
    require_triton()
    folder = tmp_path_factory.mktemp("repository")
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "config.pbtxt").write_text(CONFIG)
    (folder / "m" / "1" / "model.py").write_text(DOUBLE)
    with (
        EmbeddedTriton(folder) as real,
        FakeTriton([MODEL], version=real.version) as fake,
    ):
        yield real, fake


def ask_http(server, method, path, body=None):
    connection = http.client.HTTPConnection(server.http, timeout=patience(10))
    with contextlib.closing(connection):
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()


def infer_json(*, dtype="FP32", shape=(1, 4), data=(1, 2, 3, 4), **more):
    given = {"name": "X", "datatype": dtype, "shape": shape, "data": data}
    return json.dumps({"inputs": [given], **more})


HTTP = {
    "metadata of the server": ("GET", "/v2", None),
    "unknown model": ("GET", "/v2/models/nope", None),
    "infer": ("POST", "/v2/models/m/infer", infer_json(id="a")),
    "wrong dtype": ("POST", "/v2/models/m/infer", infer_json(dtype="INT32")),
}


@pytest.mark.parametrize("case", HTTP)
def test_http_answers_are_those_of_triton(pair, case):
    real, fake = (ask_http(server, *HTTP[case]) for server in pair)
    assert fake[0] == real[0]
    assert comparable(fake[1]) == comparable(real[1])


def comparable(body):
    """JSON where it is that, without the advice Triton puts behind an error."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if isinstance(document, dict) and "error" in document:
        return re.sub(r"\. NOTE: .*", "", document["error"])
    return document


def test_statistics_and_metrics_have_the_same_members_and_counts(pair):
    shapes = []
    for server in pair:
        before = counts(server)
        ask_http(server, "POST", "/v2/models/m/infer", infer_json())
        batch = infer_json(shape=[3, 4], data=[1] * 12)
        ask_http(server, "POST", "/v2/models/m/infer", batch)
        ask_http(server, "POST", "/v2/models/m/infer", infer_json(dtype="INT32"))
        row = statistics_row(server)
        after = counts(server)
        grown = {key: after[key] - before[key] for key in after}
        shapes.append((grown, keys(row), metric_names(server)))
    (real_grown, real_keys, real_names), (fake_grown, fake_keys, fake_names) = shapes
    assert fake_grown == real_grown
    assert fake_keys == real_keys
    assert fake_names <= real_names
    assert {name for name in real_names if "inference" in name} <= fake_names


def statistics_row(server):
    _, body = ask_http(server, "GET", "/v2/models/m/stats")
    (row,) = json.loads(body)["model_stats"]
    return row


def counts(server):
    row = statistics_row(server)
    stats = row["inference_stats"]
    return {
        "inferences": row["inference_count"],
        "executions": row["execution_count"],
        **{phase: each["count"] for phase, each in stats.items()},
    }


def keys(value):
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else type(value)


def metric_names(server):
    connection = http.client.HTTPConnection(server.metrics, timeout=patience(10))
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    return set(re.findall(r"^# TYPE (\S+ \w+)$", page, re.MULTILINE))


def infer(*, shape=(1, 4), **more):
    message = pb.ModelInferRequest(model_name="m", **more)
    message.inputs.add(name="X", datatype="FP32", shape=list(shape))
    message.raw_input_contents.append(np.ones(shape, np.float32).tobytes())
    return message


GRPC = {
    "metadata": ("ModelMetadata", pb.ModelMetadataRequest(name="m")),
    "unknown model": ("ModelMetadata", pb.ModelMetadataRequest(name="nope")),
    "trace": ("TraceSetting", pb.TraceSettingRequest()),
    "infer": ("ModelInfer", infer(id="rid")),
    "wrong shape": ("ModelInfer", infer(shape=(1, 5))),
}


def ask_grpc(server, method, message):
    with grpc.insecure_channel(server.grpc) as channel:
        service = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            answer = getattr(service, method)(message, timeout=patience(10))
        except grpc.RpcError as error:
            return error.code(), re.sub(r"\. NOTE: .*", "", error.details())
        return grpc.StatusCode.OK, MessageToDict(answer)


@pytest.mark.parametrize("case", GRPC)
def test_grpc_answers_are_those_of_triton(pair, case):
    real, fake = (ask_grpc(server, *GRPC[case]) for server in pair)
    assert fake == real
