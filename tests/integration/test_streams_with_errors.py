"""A model that answers a stream with an error: our requests to it end no server.

Triton 2.51 ended with signal 11 at one in some thousand streams that their client cancelled
after the error, while it still wrote to them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from load_runs import send
from model_kinds import DECOUPLED, streaming
from small_models import config, write_model

from exporter.errors import ModelError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.metadata import model_spec
from loadtests.plan import Entry, Mix
from loadtests.result import Outcome
from loadtests.target import Target

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

STREAMS = 1_000
IN_FLIGHT = 8
FAILS = streaming(
    "sender.send(doubled(request))",
    "sender.send(refusal('then'))",
    "time.sleep(0.002)",
    "sender.send(doubled(request))",
)
X = np.ones(1, np.float32)


HANGS = streaming("sender.send(refusal('then'))", "time.sleep(2)")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    write_model(models, "fails", config(DECOUPLED), FAILS)
    write_model(models, "fails_and_hangs", config(DECOUPLED), HANGS)
    with EmbeddedTriton(models) as server:
        yield server


def test_the_sidecars_client_reads_such_a_stream_to_its_end(server):
    client = GrpcClient(server.grpc)
    request = InferRequest("fails", "1", "c", {"x": X}, {"x": "FP32"})

    def ask(_):
        with pytest.raises(ModelError, match="then"):
            client.infer_stream(request, timeout_seconds=60)

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(ask, range(STREAMS)))
    client.close()


def test_an_error_counts_though_the_stream_does_not_end_in_time(server):
    client = GrpcClient(server.grpc)
    request = InferRequest("fails_and_hangs", "1", "c", {"x": X}, {"x": "FP32"})
    with pytest.raises(ModelError, match="then"):
        client.infer_stream(request, timeout_seconds=1)
    client.close()


def test_a_load_run_reads_such_a_stream_to_its_end(server):
    target = Target("grpc", server.grpc)
    spec = model_spec(target, "fails")
    body = body_of(spec, Row({"x": X}), "grpc")
    mix = Mix((replace(Entry("fails", spec, (body,)), style="stream"),))
    result = send(target, mix, STREAMS, concurrency=IN_FLIGHT, timeout_seconds=60)
    assert result.requests.count(Outcome.ERROR) == STREAMS
    assert result.errors == {"then": STREAMS}
