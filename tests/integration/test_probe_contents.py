"""Whatever our own requests may contain harms no server: each case on a real Triton.

The rules are in docs/design/probe-contents.md; sequences are in test_sequence_models.py.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from small_models import config, ensemble_of, write_model

from exporter.errors import TritonError, UnavailableError
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import make_payload
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

LARGEST = (1 << 63) - 1
MIB = 1 << 20
BATCHING = """dynamic_batching {
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { allow_timeout_override: true timeout_action: DELAY }
}"""
SIZES = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb.get_input_tensor_by_name(request, "x").as_numpy()
        rows = (len(x), 1) if x.ndim > 1 else (1,)
        return pb.InferenceResponse([pb.Tensor("y", np.ones(rows, np.float32))])
"""
MODELS = {
    "plain": config(dims="[-1]"),
    "batches": config(BATCHING, dims="[-1]").replace(
        "max_batch_size: 0", "max_batch_size: 4"
    ),
    "texts": config(datatype="TYPE_STRING", dims="[-1]"),
    "around": ensemble_of("plain").replace("dims: [1]", "dims: [-1]", 1),
}
PARAMETERS = {
    "the highest priority": {"priority": LARGEST},
    "a priority that no level has": {"priority": 4},
    "the shortest timeout": {"timeout": 1},
    "the longest timeout": {"timeout": LARGEST},
    "integers at both ends": {"low": -LARGEST, "high": LARGEST},
    "a long text": {"mine": "x" * MIB},
    "a name of Triton's": {"triton_enable_empty_final_response": True},
    "a name of Triton's that it lacks": {"triton_unknown": 1},
    "shared memory that is not there": {
        "shared_memory_region": "none",
        "shared_memory_byte_size": LARGEST,
        "shared_memory_offset": LARGEST,
    },
    "sizes of tensors": {"binary_data_size": LARGEST, "binary_data": False},
}
SHAPES = {
    "no elements": (0,),
    "no rows": (0, 1),
    "more rows than a batch": (5, 1),
    "a rank too many": (1, 1, 1),
    "no rank": (),
    "63 MiB": (63 * MIB // 4,),
}
TEXTS = {"an empty text": b"", "a text of 60 MB": b"x" * 60_000_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory, triton_environment):
    folder = tmp_path_factory.mktemp("contents")
    for name, text in MODELS.items():
        write_model(folder, name, text, SIZES)
    with EmbeddedTriton(
        folder, environment=triton_environment, ready_timeout_seconds=120
    ) as triton:
        yield triton


@pytest.fixture(params=["grpc", "http"])
def client(server, request):
    made = {"grpc": GrpcClient, "http": HttpClient}[request.param]
    with contextlib.closing(made(getattr(server, request.param))) as client:
        yield client


@pytest.fixture
def specs(server):
    with contextlib.closing(GrpcClient(server.grpc)) as client:
        return {n: client.model_spec(n, "1", timeout_seconds=10) for n in MODELS}


@pytest.fixture(autouse=True)
def _unharmed(server, client, specs):
    """The server and its backends are those of before, and every model answers."""
    before = set(server.stub_pids())
    yield
    for spec in specs.values():
        inputs = make_payload(spec, {}, np.random.default_rng(0)).inputs
        client.infer(own_request(spec, "after", inputs), timeout_seconds=60)
    assert server.running
    assert set(server.stub_pids()) == before


def send(client, spec, inputs, parameters=None):
    """Triton may refuse it, and must stay there to do so."""
    request = own_request(spec, "tried", inputs, parameters=parameters)
    with contextlib.suppress(TritonError):
        try:
            client.infer(request, timeout_seconds=60)
        except UnavailableError as gone:
            pytest.fail(f"{spec.name}: {gone}")


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(client, specs, name) -> None:
    for spec in specs.values():
        inputs = make_payload(spec, {}, np.random.default_rng(0)).inputs
        send(client, spec, inputs, PARAMETERS[name])


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(client, specs, name) -> None:
    for model in ("plain", "batches", "around"):
        send(client, specs[model], {"x": np.zeros(SHAPES[name], np.float32)})


@pytest.mark.parametrize("name", TEXTS)
def test_lengths_of_texts(client, specs, name) -> None:
    send(client, specs["texts"], {"x": np.array([TEXTS[name]], object)})
