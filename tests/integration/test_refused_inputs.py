"""Models that refuse generated inputs, as those that decode a JPEG do: unproven, not dead."""

from __future__ import annotations

import json

import numpy as np
import pytest
from model_kinds import answering
from production import Production
from small_models import config, write_model

from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

JPEG = b"\xff\xd8\xff\xe0\0\0"
IS_JPEG = 'x = pb.get_input_tensor_by_name(request, "x").as_numpy()[0]'
REFUSE = 'return refusal("not a JPEG", pb.TritonError.INVALID_ARG)'
RAISE = 'raise ValueError("cannot identify image file")'
SAVED = 'return pb.InferenceResponse([pb.Tensor("y", np.ones(1, np.float32))])'
MODELS = {
    name: answering(IS_JPEG, f"if not x.startswith({JPEG[:2]!r}): {fails}", SAVED)
    for name, fails in (("refuses", REFUSE), ("raises", RAISE))
}
KEY = {"version": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name, code in MODELS.items():
        write_model(models, name, config(datatype="TYPE_STRING"), code)
    with EmbeddedTriton(models) as server:
        yield server


class Client(Production):
    """Production that sends both models a JPEG."""

    def ask(self, user):  # noqa: ARG002 - there is one
        sent = np.array([JPEG], np.object_)
        for model in MODELS:
            request = InferRequest(model, "1", "client", {"x": sent}, {"x": "BYTES"})
            self.client.infer(request, timeout_seconds=20)


def serving(page, model):
    return page.value("triton_model_serving", model=model, **KEY)


def probed(page, outcome, model):
    return page.sum("triton_probe_total", model=model, outcome=outcome)


def test_a_refusal_of_generated_inputs_is_no_failure_of_the_model(
    server, settings, start_sidecar
):
    sidecar = start_sidecar(settings(server, probe={"timeout_seconds": 20.0}))
    page = sidecar.wait(lambda p: serving(p, "raises") == 0)
    # INVALID_ARG says that the request is wrong; an exception does not.
    assert serving(page, "refuses") is None
    with Client(server.grpc, pause_seconds=0.1):
        sidecar.wait(
            lambda p: (
                serving(p, "raises") is None and probed(p, "configuration", "raises")
            )
        )
        status = json.loads(sidecar.get("/api/v1/status").body)
    assert {m["model"]: m["state"] for m in status["models"]} == {
        "refuses": "UNKNOWN",
        "raises": "UNKNOWN",
    }
    texts = {f["subject"]: f["text"] for f in status["findings"]}
    assert "not a JPEG; give it some" in texts["refuses"]
    assert "answers other clients" in texts["raises"]
    assert "cannot identify image file" in texts["raises"]


def test_files_are_inputs_that_such_a_model_takes(
    server, settings, start_sidecar, tmp_path
):
    (tmp_path / "one.jpg").write_bytes(JPEG)
    inputs = {"x": {"files": [str(tmp_path / "one.jpg")]}}
    overrides = {model: {"inputs": inputs} for model in MODELS}
    probe = {"timeout_seconds": 20.0, "overrides": overrides}
    sidecar = start_sidecar(settings(server, probe=probe))
    sidecar.wait(lambda p: all(serving(p, model) == 1 for model in MODELS))
    # It took them before: now a refusal is a failure.
    (tmp_path / "one.jpg").write_bytes(b"GIF89a")
    page = sidecar.wait(lambda p: all(serving(p, model) == 0 for model in MODELS))
    assert probed(page, "invalid", "refuses")
    # A file that cannot be read is our fault.
    (tmp_path / "one.jpg").unlink()
    sidecar.wait(lambda p: all(serving(p, model) is None for model in MODELS))
