"""A model loaded anew under the same version with another signature, on a real Triton."""

from __future__ import annotations

import contextlib
import shutil
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from production import Production

from exporter.errors import TritonError
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton

DOUBLE = Path(__file__).parents[1] / "data" / "models" / "double"


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    shutil.copytree(DOUBLE, folder / "double")
    return folder


def resize(repository, width):
    """Give the model's tensors another size on disk."""
    config = repository / "double" / "config.pbtxt"
    text = (DOUBLE / "config.pbtxt").read_text("utf-8")
    assert "[8]" in text.replace(" ", "")
    config.write_text(text.replace(" ", "").replace("[8]", f"[{width}]"), "utf-8")


class Client(Production):
    """Production that always sends the size the model has now."""

    def __init__(self, grpc):
        super().__init__(grpc, pause_seconds=0.05)
        self.width, self.answered = 8, 0

    def ask(self, user):  # noqa: ARG002 - there is one
        tensors = {"x": np.ones((1, self.width), np.float32)}
        request = InferRequest("double", "", "client", tensors, {"x": "FP32"})
        with contextlib.suppress(TritonError):
            self.client.infer(request, timeout_seconds=10)
            self.answered += 1


def load(triton, model):
    """Load a model again; returns when Triton is done."""
    url = f"http://{triton.http}/v2/repository/models/{model}/load"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=60):
        pass


def watch(sidecar, seconds):
    """Every value of triton_model_serving seen within so long."""
    seen = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen.append(sidecar.page().value("triton_model_serving", model="double"))
        time.sleep(0.05)
    return seen


@pytest.mark.parametrize("traffic", [True, False], ids=["clients", "idle"])
def test_a_reload_with_another_input_size_is_a_load_and_stays_serving(
    repository, start_triton, settings, start_sidecar, traffic
):
    triton = start_triton(
        repository, model_control="explicit", arguments=["--load-model=double"]
    )
    # A slow machine is not what is tested here.
    sidecar = start_sidecar(settings(triton, probe={"timeout_seconds": 10}))
    sidecar.wait(lambda p: p.value("triton_model_serving", model="double") == 1)
    loads = "triton_model_loads_total"
    assert sidecar.page().value(loads, model="double") == 0
    with Client(triton.grpc) as client:
        for number, width in enumerate((12, 5), start=1):
            resize(repository, width)
            load(triton, "double")
            client.width = width
            seen = watch(sidecar, 4)
            assert 0 not in seen, seen
            sidecar.wait(lambda p, n=number: p.value(loads, model="double") == n, 20)
        assert client.answered
    # Late evidence of a reload is not another one.
    sidecar.settle(4)
    assert sidecar.page().value(loads, model="double") == 2
