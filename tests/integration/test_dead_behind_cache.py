"""A sidecar never calls a model serving for long whose stub is dead behind a response cache."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from production import Production
from small_models import COUNTS, config, ensemble_of, write_model
from waiting import wait_until

from exporter.errors import TritonError
from exporter.triton import backend
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

CACHED = "response_cache { enable: true }"
ROWS = "max_batch_size: 8"
CONSTANT = {"inputs": {"x": {"values": [1]}}}
MODELS = {
    "constant": (config(CACHED), CONSTANT),
    "constant_length": (config(CACHED, dims="[-1]"), CONSTANT),
    "one_bool": (config(CACHED, datatype="TYPE_BOOL"), {}),
    "one_integer": (config(CACHED, datatype="TYPE_INT64"), {}),
    "length_1_only": (config(CACHED, datatype="TYPE_INT32", dims="[-1]"), {}),
    "rows": (
        config(CACHED, datatype="TYPE_INT32").replace("max_batch_size: 0", ROWS),
        {},
    ),
    "around_rows": (
        ensemble_of("rows", ROWS).replace("TYPE_FP32", "TYPE_INT32", 1),
        {},
    ),
    "length": (config(CACHED, datatype="TYPE_INT64", dims="[-1]"), {}),
    "floats": (config(CACHED), {}),
}
PROVEN = {"rows", "around_rows", "length", "floats"}
"""Models whose cache cannot know all requests."""
BY_ROWS = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb.get_input_tensor_by_name(request, "x").as_numpy()
        return pb.InferenceResponse([pb.Tensor("y", np.zeros((len(x), 1), np.float32))])
"""
LENGTH_1_ONLY = BY_ROWS.replace(
    "        return pb.InferenceResponse",
    """        if x.size > 1:
            raise ValueError(f"want 1 value, found {x.size}")
        return pb.InferenceResponse""",
).replace("(len(x), 1)", "1")
CODE = {
    "rows": BY_ROWS,
    "length": BY_ROWS.replace("(len(x), 1)", "1"),
    "length_1_only": LENGTH_1_ONLY,
}


@pytest.fixture
def server(start_triton, triton_environment, tmp_path):
    models = tmp_path / "models"
    for name, (text, _) in MODELS.items():
        write_model(models, name, text, CODE.get(name, COUNTS))
    write_model(models, "around", ensemble_of("constant"))
    site = backend.inspect(triton_environment).site
    caches = site / "pytriton/tritonserver/caches"
    return start_triton(
        models,
        arguments=[f"--cache-directory={caches}", "--cache-config=local,size=1048576"],
    )


@pytest.fixture
def sidecar(server, settings, start_sidecar):
    overrides = {name: override for name, (_, override) in MODELS.items() if override}
    return start_sidecar(
        settings(
            server,
            probe={"overrides": overrides | {"around": CONSTANT}, "timeout_seconds": 2},
            multi_target={"allow": [server.grpc, server.http]},
        )
    )


class Failing(Production):
    """Production that sends a model values which no cache knows, and gets errors."""

    def __init__(self, server, model):
        super().__init__(server.grpc, pause_seconds=0.01)
        self._model = model
        self.failed = 0

    def ask(self, user):  # noqa: ARG002 - there is one
        x = {"x": np.full(1, self.sent, np.float32)}
        request = InferRequest(
            self._model, "1", f"client-{self.sent}", x, {"x": "FP32"}
        )
        try:
            self.client.infer(request, timeout_seconds=2)
        except TritonError:
            self.failed += 1


def serving(page, name):
    return page.value("triton_model_serving", model=name)


def test_a_dead_model_behind_a_cache_is_unproven_or_not_serving_and_never_serving(
    server, sidecar
) -> None:
    names = {*MODELS, "around"}
    unproven = names - PROVEN

    def is_settled(page):
        return all(serving(page, name) is None for name in unproven) and all(
            serving(page, name) == 1 for name in PROVEN
        )

    sidecar.wait(is_settled)

    def unproven_are_unjudged():
        looked = sidecar.get(f"/probe?target={server.grpc}&http={server.http}")
        page = sidecar.parsed(looked)
        assert page.value("probe_success") == 0
        judged, unjudged = (
            page.value(f"probe_models_{state}") for state in ("judged", "unjudged")
        )
        assert judged + unjudged == len(names)
        # By chance the cache may know what one scrape sends to a model of `PROVEN`.
        return unjudged >= len(unproven)

    # On a busy machine one may time out, which is a judgement.
    wait_until(unproven_are_unjudged)
    for pid in server.stub_pids():
        os.kill(pid, signal.SIGKILL)
    sidecar.wait(lambda page: all(serving(page, name) == 0 for name in PROVEN))
    # What fails for others is no execution that would prove anything.
    with Failing(server, "constant") as production:
        wait_until(lambda: production.failed >= 20)
        for _ in range(20):
            page = sidecar.settle(1)
            assert not any(serving(page, name) == 1 for name in names)
