"""Answers that come about when their caller gives up: the server survives our timeouts.

Triton 2.51 ended with signal 11 after some dozen such timeouts of each of these models.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from model_kinds import DECOUPLED, answering, streaming
from small_models import config, write_model

from exporter.errors import DeadlineError, ModelError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

MODELS = {
    "streams": (
        DECOUPLED,
        streaming(
            "sender.send(doubled(request))",
            "time.sleep(0.01)",
            "sender.send(doubled(request))",
        ),
    ),
    "bursts": (
        DECOUPLED,
        streaming(
            "time.sleep(0.01)",
            "for _ in range(50):",
            "    sender.send(doubled(request))",
        ),
    ),
    "refuses": ("", answering("time.sleep(0.01)", "return refusal('asked to')")),
}
IN_FLIGHT = 2
SECONDS = 4.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    group = f"instance_group [{{ kind: KIND_CPU count: {IN_FLIGHT} }}]"
    for name, (policy, code) in MODELS.items():
        write_model(models, name, config(f"{policy}\n{group}"), code)
    with EmbeddedTriton(models) as server:
        yield server


@pytest.mark.parametrize("model", MODELS)
def test_a_timeout_as_the_answer_comes_does_not_crash_the_server(server, model):
    client = GrpcClient(server.grpc)
    inputs = {"x": np.ones(1, np.float32)}, {"x": "FP32"}
    request = InferRequest(model, "1", "c", *inputs)
    ask = client.infer if model == "refuses" else client.infer_stream
    until = time.monotonic() + SECONDS

    def run(seed):
        """Return how many requests got no answer in time, and how many one."""
        chance, late, answered = np.random.default_rng(seed), 0, 0
        while time.monotonic() < until:
            try:
                ask(request, timeout_seconds=chance.uniform(0.01, 0.03))
            except DeadlineError:
                late += 1
            except ModelError:
                answered += 1
            else:
                answered += 1
        return late, answered

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        for late, answered in pool.map(run, range(IN_FLIGHT)):
            assert late > 20, (late, answered)
    assert client.ready(timeout_seconds=20)
    client.close()
