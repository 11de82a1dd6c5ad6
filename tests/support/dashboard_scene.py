"""What dashboards are tried on: the demo while much goes wrong, and all that it leaves off.

Beside the demo with its load and its frozen server stands a second deployment: a server
whose model is unloaded and loaded again, a sidecar with every option that the demo does
not need, and scripted GPUs.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import yaml
from commands import COMMAND
from monitoring import free_port
from waiting import wait_until

from exporter.demo.demo_traffic import Mirror
from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest
from exporter.triton.tensors import decode

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "deploy" / "models"
EXPERIMENTS = ROOT / "loadtests" / "chaos" / "experiments"
HELD_OUT = MODELS / "digits_fp32" / "data" / "held_out.npz"
# Series of which a scene shows the p99 only if 368 independent requests, or gaps between
# responses, came into one window; those of the demo depend on each other.
INTERVALS_OF_P99 = {
    "triton_request_latency_ci_seconds",
    "triton_request_first_response_latency_ci_seconds",
    "triton_request_response_gap_latency_seconds",
    "triton_request_response_gap_latency_ci_seconds",
}
# As many as the model takes at once: windows so large that a trend stands out of chance.
ROWS = 64


class Running:
    """A `tritonwatch` command that goes on until the block ends."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [COMMAND, *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def said(self, pattern: str) -> str:
        """The first group of a pattern, as soon as it is printed."""
        said = self.log.read_text
        found = wait_until(lambda: re.search(pattern, said("utf-8")), said, pause=0.2)
        assert found is not None
        return found[1]

    def ended(self, seconds: float) -> int:
        """Its exit status."""
        return self.process.wait(seconds)


# What is done to the deployments.


def experiment(name: str, site: dict[str, Any], sidecar: str, folder: Path) -> Path:
    """A shipped experiment, turned on a deployment that runs already."""
    document = yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text("utf-8"))
    (extension,) = document["extensions"]
    extension["target"] = {
        "kind": "process",
        "called": "scene",
        "sidecar_url": sidecar,
        **site,
    }
    extension["load"]["models"][0]["data"] = str(EXPERIMENTS / "digits.npz")
    extension["load"]["profile"]["requests_per_second"] = 10
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def chaos(file: Path, tap: str) -> Running:
    """Play it, and tell the sidecar whose tap that is."""
    return Running(
        file.with_suffix(".log"),
        *("chaos", "run", str(file), "--quiet", "--allow", "process:scene"),
        *("--sidecar", tap, "--state", str(file.with_suffix(".state"))),
    )


def load(address: str, tap: str, log: Path) -> Running:
    """A load run for as long as anybody looks."""
    return Running(
        log,
        *("load", "run", "--quiet", "--address", address, "--model", "slow"),
        *("--profile", "poisson", "--rate", "15", "--duration", "600"),
        *("--sidecar", tap),
    )


def report_capacity(tap: str) -> None:
    """As a search would, so that there is headroom to be shown."""
    found = {"model": "slow", "slo": "p99<60ms", "requests_per_second": 180}
    body = json.dumps({**found, "low": 170, "high": 190}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{tap}/v1/capacity", body, headers)
    urllib.request.urlopen(request, timeout=5).close()


# The second deployment.


def repository(folder: Path) -> Path:
    """Two of the demo's models, in files of our own."""
    for name in ("digits_fp32", "diabetes"):
        shutil.copytree(MODELS / name, folder / name)
    return folder


def access_log(folder: Path) -> Path:
    """The log of a proxy in front of the server."""
    path = folder / "access.log"
    path.touch()
    return path


def everything(triton: EmbeddedTriton, folder: Path) -> dict[str, Any]:
    """A sidecar's configuration with what the demo's has not."""
    digits = {"include": ["digits_fp32"]}
    every = {"interval_seconds": 0.5}
    return {
        "target": {"grpc": triton.grpc, "http": triton.http, "metrics": triton.metrics},
        "listen": {"address": "127.0.0.1", "port": 0, "tap": {"port": 0}},
        "collectors": [
            {"kind": "server", **every},
            {"kind": "statistics", **every},
            {"kind": "mirror", **every, "samples_per_second": 1000},
            {"kind": "outputs", **every, "models": digits},
            {"kind": "cold_start"},
            {"kind": "runs", **every},
            {"kind": "access_log", **every, "paths": [str(access_log(folder))]},
        ],
        "probes": [
            {
                "kind": "synthetic",
                "interval_seconds": 0.1,
                "max_requests_per_second": 100,
            },
            {
                "kind": "golden",
                **every,
                "models": digits,
                "data": {"file": str(HELD_OUT), "label": "label"},
                "samples_per_request": 64,
                "idle_requests_per_second": 20,
                "idle_busy_ratio": 1,
                "max_requests_per_second": 20,
            },
        ],
        "drift": [
            {
                "models": "diabetes",
                "reference": str(MODELS / "diabetes" / "data" / "reference.profile"),
                "window": {"rows": 300, "seconds": 1},
                "classic_thresholds": True,
                "state": str(folder / "state"),
                "state_seconds": 2,
                "forecast": {"psi_limit": 100, "every_seconds": 1},
            }
        ],
        "power": {
            "interval_seconds": 0.5,
            "window_seconds": 2,
            "rate_window_seconds": 30,
            "sources": [{"kind": "nvml", "idle_watts": 60}],
        },
        "cost": {"models": {"digits_fp32": {"flops_per_inference": 9000}}},
        # Nobody is there who would take them.
        "otlp": {
            "endpoint": f"http://127.0.0.1:{free_port()}",
            "interval_seconds": 1,
            "timeout_seconds": 0.5,
        },
    }


class Production:
    """Users of the second deployment, whose patients grow older by the minute.

    Requests and answers are mirrored to the tap and logged; one request in ten has a tensor too
    many, which the server refuses and the tap sees all the same.
    """

    def __init__(
        self, triton: EmbeddedTriton, tap: int, older_seconds: float, log: Path
    ) -> None:
        self._address = triton.grpc
        self._access_log = log
        self._tap = tap
        self._older_seconds = older_seconds
        self._rng = np.random.default_rng(0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._digits = _columns(HELD_OUT)["pixels"].astype(np.float32)
        data = MODELS / "diabetes" / "data"
        self._patients = _columns(data / "held_out.npz")
        self._older = _columns(data / "drift.npz")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _go_on(self) -> None:
        client, started = GrpcClient(self._address), time.monotonic()
        with contextlib.closing(client), Mirror(self._tap) as mirror:
            while not self._stop.wait(0.1):
                older = min(1, (time.monotonic() - started) / self._older_seconds)
                patients = self._ask("diabetes", self._patients_of(older))
                mirror(patients)
                digits = self._digits[self._rng.integers(len(self._digits), size=16)]
                with contextlib.suppress(TritonError):
                    client.infer(patients, timeout_seconds=5)
                # The model is unloaded for a while: users are refused, and come again.
                with contextlib.suppress(TritonError):
                    asked = self._ask("digits_fp32", {"pixels": digits})
                    (scores,) = client.infer(asked, timeout_seconds=5).outputs
                    self._log(decode(scores))

    def _ask(self, model: str, inputs: dict[str, Any]) -> InferRequest:
        types = {
            name: "FP32" if value.dtype.kind == "f" else "BYTES"
            for name, value in inputs.items()
        }
        return InferRequest(model, "", "production", inputs, types)

    def _patients_of(self, older: float) -> dict[str, Any]:
        chosen = self._rng.random((ROWS, 1)) < older
        old, young = (
            self._rng.integers(len(people["age"]), size=(ROWS, 1))
            for people in (self._older, self._patients)
        )
        rows: dict[str, Any] = {
            name: np.where(chosen, self._older[name][old], values[young])
            for name, values in self._patients.items()
        }
        rows["sex"] = rows["sex"].astype(object)
        if self._rng.random() < 0.1:
            rows["note"] = np.zeros((ROWS, 1), np.float32)
        return rows

    def _log(self, scores: Any) -> None:
        """The answer, as KServe's logger and a proxy pass it on; the proxy fails at times."""
        status = 502 if self._rng.random() < 0.1 else 200
        line = {"path": "/v2/models/digits_fp32/infer", "status": status, "agent": "a"}
        with self._access_log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        tensor = {
            "name": "probabilities",
            "datatype": "FP32",
            "shape": list(scores.shape),
            "data": scores.ravel().tolist(),
        }
        document = {"model_name": "digits_fp32", "id": "p", "outputs": [tensor]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._tap}/",
            json.dumps(document).encode(),
            {
                "ce-type": "org.kubeflow.serving.inference.response",
                "ce-id": "p",
                "ce-source": "production",
                "ce-specversion": "1.0",
                "ce-inferenceservicename": "digits_fp32",
                "content-type": "application/json",
            },
        )
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=2).close()


def _columns(path: Path) -> dict[str, Any]:
    with np.load(path) as data:
        return {name: data[name] for name in data.files if name != "label"}
