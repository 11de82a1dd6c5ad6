"""Failures of production as they are counted, beside those that its clients see."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from model_kinds import KINDS
from small_models import write_model

from exporter.errors import TritonError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

MODELS = (
    *("good", "child", "raises", "raises_as_step_1"),
    *("queue_rejects", "queue_rejects_as_step_1"),
)
SENT = 20


@pytest.fixture(scope="module")
def sidecar(triton_environment, tmp_path_factory, settings, sidecar_process):
    folder = tmp_path_factory.mktemp("failing")
    for name in MODELS:
        kind = KINDS[name]
        write_model(folder / "models", name, kind.config, kind.code)
    with EmbeddedTriton(folder / "models", environment=triton_environment) as triton:
        sidecar = sidecar_process(settings(triton, probes=[]), folder)
        with contextlib.closing(sidecar):
            sidecar.wait_listening()
            sidecar.wait(lambda page: all(failures(page, m) == 0 for m in MODELS))
            sidecar.target = triton.grpc
            yield sidecar


def failures(page, model):
    return page.value("triton_requests_total", model=model, outcome="failure")


def failed_at_the_client(address, model):
    client, failed = GrpcClient(address), 0
    shape = (1, 1) if model == "queue_rejects" else (1,)
    for _ in range(SENT):
        x = {"x": np.zeros(shape, np.float32)}
        request = InferRequest(model, "", "client", x, {"x": "FP32"})
        try:
            client.infer(request, timeout_seconds=20)
        except TritonError:
            failed += 1
    client.close()
    return failed


@pytest.mark.parametrize(
    ("model", "times", "step"),
    [
        ("raises", 1, None),
        ("queue_rejects", 1, None),
        # Triton books each failure of an ensemble twice, and once on the step.
        ("raises_as_step_1", 2, "raises"),
        ("queue_rejects_as_step_1", 2, "queue_rejects"),
    ],
)
def test_a_failure_is_counted_once_and_of_an_ensemble_twice(
    sidecar, model, times, step
) -> None:
    before = sidecar.settle()
    assert failed_at_the_client(sidecar.target, model) == SENT

    def new(page, name):
        return failures(page, name) - failures(before, name)

    sidecar.wait(lambda page: new(page, model) >= times * SENT)
    page = sidecar.settle(3)
    assert new(page, model) == times * SENT
    if step is not None:
        assert new(page, step) == SENT
