"""Golden probes, process control and estimated accuracy in a real sidecar beside Triton."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from waiting import patience

from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest
from exporter.triton.tensors import decode

pytestmark = pytest.mark.triton

HELD_OUT = Path(__file__).parents[2] / "deploy/models/digits_fp32/data/held_out.npz"
EVENT = "org.kubeflow.serving.inference.response"


@pytest.fixture
def sidecar(triton, settings, start_sidecar, tmp_path):
    short = tmp_path / "short.csv"
    short.write_text("pixels[0],pixels[1],label\n1,2,3\n4,,5\n")
    golden = {
        "kind": "golden",
        "interval_seconds": 0.05,
        "max_requests_per_second": 20,
        "models": {"include": ["digits_fp32"]},
        "samples_per_request": 64,
        "idle_requests_per_second": 20,
        "idle_busy_ratio": 1,
        "timeout_seconds": 5,
    }
    config = settings(triton)
    config["listen"]["tap"] = {"port": 0}
    config["probes"] += [
        {**golden, "name": "digits", "data": {"file": str(HELD_OUT), "label": "label"}},
        {**golden, "name": "broken", "data": {"file": str(short), "label": "label"}},
    ]
    config["collectors"] += [
        {
            "kind": "mirror",
            "interval_seconds": 0.3,
            "samples_per_second": 10_000,
            "max_samples_per_second": 10_000,
        },
        {"kind": "outputs", "interval_seconds": 0.3},
        {
            "kind": "spc",
            "interval_seconds": 0.3,
            "state_file": str(tmp_path / "spc.json"),
            "signals": [
                {
                    "name": "accuracy",
                    "metric": "triton_golden_score_ratio",
                    "labels": {"model": "digits_fp32", "metric": "accuracy"},
                    # The model is at 97.1 %: it has never been this good.
                    "baseline": {"mean": 0.999, "sigma": 0.005},
                    "sides": "lower",
                    "heal_samples": 1000,
                }
            ],
        },
    ]
    return start_sidecar(config)


def post(port: int, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        body,
        {name.replace("_", "-"): value for name, value in headers.items()},
    )
    try:
        with urllib.request.urlopen(request, timeout=patience(10)) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def tap_port(sidecar) -> int:
    return int(re.search(r"event=tap_listening .*address=\S*?:(\d+)", sidecar.log)[1])


def answered(triton) -> list[bytes]:
    """Responses of the real model as a logger sends them: a little blurred."""
    with np.load(HELD_OUT) as data:
        pixels, label = data["pixels"].astype(np.float32), data["label"]
    blurred = pixels + np.random.default_rng(5).normal(0, 1, pixels.shape)
    client = GrpcClient(triton.grpc)
    bodies = []
    for places in np.array_split(np.arange(len(label)), 40):
        rows = blurred[places].astype(np.float32)
        request = InferRequest(
            "digits_fp32", "", "q", {"pixels": rows}, {"pixels": "FP32"}
        )
        (output,) = client.infer(request, timeout_seconds=10).outputs
        scores = decode(output)
        tensor = {
            "name": "probabilities",
            "datatype": "FP32",
            "shape": list(scores.shape),
            "data": scores.ravel().tolist(),
        }
        document = {"model_name": "digits_fp32", "id": "q", "outputs": [tensor]}
        right = (scores.argmax(axis=1) == label[places]).tolist()
        bodies.append((json.dumps(document).encode(), right))
    client.close()
    return bodies


def test_answers_are_watched_beside_everything_else(sidecar, triton) -> None:
    scored = sidecar.wait(
        lambda page: page.value(
            "triton_golden_score_ratio", model="digits_fp32", metric="accuracy"
        ),
        30,
    )
    accuracy = scored.value("triton_golden_score_ratio", metric="accuracy")
    assert accuracy == pytest.approx(436 / 449)
    assert scored.values("triton_golden_rounds_total", dataset="held_out")[0] >= 1
    # A golden file that is wrong costs itself alone, and is told once, with its place.
    assert scored.value("triton_golden_usable", dataset="short") == 0
    assert scored.value("triton_golden_usable", dataset="held_out") == 1
    told = [x for x in sidecar.log.splitlines() if "golden_data_unusable" in x]
    assert len(told) == 1
    assert "row=1" in told[0]
    assert "pixels[1]" in told[0]
    # It says nothing of whether a tensor goes through.
    assert scored.value("triton_model_serving", model="digits_fp32") == 1
    # Golden requests are ours: production did nothing.
    assert sidecar.settle().value(
        "triton_requests_total", model="digits_fp32", outcome="success"
    ) in {0, None}

    alarmed = sidecar.wait(
        lambda page: page.value("triton_spc_alarm", signal="accuracy", chart="cusum"),
        20,
    )
    assert alarmed.value("triton_spc_statistic", chart="cusum") < 0
    port = tap_port(sidecar)
    body = json.dumps({"signal": "accuracy", "chart": "cusum"}).encode()
    kind = {"content_type": "application/json"}
    path = "/api/v1/spc/acknowledge"
    assert post(port, path, body, **kind) == (200, b"1 alarms ended\n")
    assert post(port, path, b"{}", **kind)[0] == 400
    again = sidecar.wait(
        lambda page: page.value("triton_spc_alarms_total", chart="cusum") == 2, 20
    )
    assert again.value("triton_spc_alarm", chart="cusum") == 1

    right = []
    for number, (document, truth) in enumerate(answered(triton)):
        status, _ = post(
            port,
            "/",
            document,
            ce_type=EVENT,
            ce_id=str(number),
            ce_source="test",
            ce_specversion="1.0",
            ce_inferenceservicename="digits_fp32",
            content_type="application/json",
        )
        assert status < 300
        right += truth
    estimated = sidecar.wait(
        lambda page: (
            page.value("triton_output_rows_total", model="digits_fp32") == 449
            and page.value("triton_estimated_accuracy_ratio", model="digits_fp32")
        ),
        20,
    )
    low, high = (
        estimated.value("triton_estimated_accuracy_ci_ratio", bound=bound)
        for bound in ("lower", "upper")
    )
    assert low <= np.mean(right) <= high
    valid = "triton_estimated_accuracy_valid"
    # Nobody watches the inputs: that they did not drift is not known.
    assert estimated.value(valid, condition="drift_watched", model="digits_fp32") == 0
    assert estimated.value(valid, condition="no_drift", model="digits_fp32") is None
    assert estimated.value(valid, condition="calibrated", model="digits_fp32") == 1
    shares = estimated.values("triton_output_class_ratio", source="production")
    assert sum(shares) == pytest.approx(1)
    assert b"Blind to concept drift" in estimated.body
