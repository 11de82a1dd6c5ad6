"""Probes that fail are no production either, however Triton books the failure."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ModelError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[1] / "data" / "models_erring"
COUNTERS = (
    "triton_requests_total",
    "triton_inferences_total",
    "triton_executions_total",
)


@pytest.fixture(scope="module")
def erring(tmp_path_factory):
    with EmbeddedTriton(MODELS) as triton:
        yield triton


def probing(value: float) -> dict[str, object]:
    return {"overrides": {"erring": {"inputs": {"x": {"values": [value]}}}}}


def test_production_is_never_overstated_beside_probes_that_fail(
    erring, settings, start_sidecar
) -> None:
    sidecar = start_sidecar(settings(erring, probe=probing(2.0)))
    sidecar.wait(lambda p: p.value("triton_model_serving", model="erring") == 0)
    sidecar.settle()
    client = GrpcClient(erring.grpc)
    for value in (0.0,) * 12 + (1.0,) * 5:
        x = {"x": np.full((1, 1), value, np.float32)}
        request = InferRequest("erring", "", "client", x, {"x": "FP32"})
        try:
            client.infer(request, timeout_seconds=5)
        except ModelError:
            assert value == 1.0
    client.close()
    requests = "triton_requests_total"

    def counted(page):
        return [page.value(requests, outcome=kind) for kind in ("success", "failure")]

    def accounted_for(page):
        return sum(counted(page)) + page.sum("triton_unattributed_requests_total")

    sidecar.wait(lambda p: accounted_for(p) >= 17)
    page = sidecar.settle()
    # A probe that fails may be any success or failure that shows at its look.
    success, failure = counted(page)
    assert success <= 12
    assert failure <= 5
    assert page.value("triton_executions_total") <= 17


def test_probes_of_a_dead_backend_are_not_counted_as_production(
    settings, start_sidecar
) -> None:
    with EmbeddedTriton(MODELS) as triton:
        sidecar = start_sidecar(settings(triton, probe=probing(0.0)))
        sidecar.wait(lambda p: p.value("triton_model_serving", model="erring") == 1)
        for pid in triton.stub_pids():
            os.kill(pid, signal.SIGKILL)
        sidecar.wait(lambda p: p.value("triton_model_serving", model="erring") == 0)
        page = sidecar.settle()
        assert page.value("triton_model_ready", model="erring") == 1
        assert page.value("triton_model_serving", model="erring") == 0
        for counter in COUNTERS:
            assert page.sum(counter) == 0, counter
