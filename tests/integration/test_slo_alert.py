"""From a broken objective on the real Triton to the page on the webhook, and back."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
import pytest
import yaml
from monitoring import Alertmanager, Job, free_port

from exporter.config import parse
from exporter.errors import TritonError
from exporter.slo.objectives import expanded
from exporter.slo.rules import rules_file
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(180)]

MODELS = Path(__file__).parents[1] / "data" / "models"
SLOS = [
    {
        "kind": "latency",
        "name": "sleepy-latency",
        "models": "sleepy",
        "threshold_seconds": 0.05,
        "objective_ratio": 0.95,
        "source": "requests",
    }
]


class Load:
    """Requests to the slow model, one after the other, with a delay that can change."""

    def __init__(self, grpc: str) -> None:
        self._client = GrpcClient(grpc)
        self.delay_ms = 1
        self.pause_seconds = 0.05
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)
        self._client.close()

    def _send(self) -> None:
        x = {"x": np.ones(1, np.float32)}
        while not self._stop.wait(self.pause_seconds):
            request = InferRequest(
                "sleepy", "", "load", x, {"x": "FP32"}, {"delay_ms": self.delay_ms}
            )
            with contextlib.suppress(TritonError):
                self._client.infer(request, timeout_seconds=5)


def test_a_broken_latency_objective_pages_and_resolves_when_it_heals(
    settings, start_sidecar, webhook, start_prometheus, tmp_path
) -> None:
    tap_port = free_port()
    arguments = (
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url=http://127.0.0.1:{tap_port}/v1/traces",
        "--trace-config=opentelemetry,bsp_schedule_delay=500",
        "--trace-config=rate=1",
        "--trace-config=level=TIMESTAMPS",
    )
    repository = tmp_path / "models"
    shutil.copytree(MODELS, repository)
    objectives = expanded(parse(yaml.safe_dump({"slos": SLOS}).encode(), "s", {}).slos)
    with (
        EmbeddedTriton(repository, arguments=arguments) as triton,
        Alertmanager(tmp_path, webhook) as alertmanager,
    ):
        config = settings(triton, slos=SLOS)
        config["collectors"].append({"kind": "traces", "interval_seconds": 0.5})
        config["listen"]["tap"] = {"port": tap_port}
        sidecar = start_sidecar(config)
        start_prometheus(
            Job([sidecar.port]),
            rules={"rules.yml": rules_file(objectives)},
            alertmanager=alertmanager,
        )
        with Load(triton.grpc) as load:
            time.sleep(6)
            assert not webhook.alerts
            load.delay_ms = 200
            page = webhook.wait("firing", 60, severity="page")
            assert page["labels"]["alertname"] == "TritonSLOBurnPage"
            assert page["labels"]["slo"] == "sleepy-latency"
            load.delay_ms, load.pause_seconds = 1, 0.01
            webhook.wait("resolved", 90, severity="page")
