"""From a broken objective on the real Triton to the page on the webhook, and back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import numpy as np
import pytest
import yaml

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


class Webhook:
    """Receives what Alertmanager sends."""

    def __init__(self) -> None:
        self.alerts: deque[dict] = deque(maxlen=100)
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                webhook.alerts.extend(body["alerts"])
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def wait_page(self, status: str, seconds: float) -> dict:
        deadline = time.monotonic() + seconds
        while True:
            found = [
                alert
                for alert in list(self.alerts)
                if alert["status"] == status and alert["labels"]["severity"] == "page"
            ]
            if found:
                return found[0]
            assert time.monotonic() < deadline, f"no alert became {status}"
            time.sleep(0.05)


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


@pytest.fixture(autouse=True)
def require_parts() -> None:
    for part in ("prometheus", "prometheus-alertmanager"):
        if shutil.which(part) is None:
            message = f"{part} is not installed: apt-get install {part}"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)


@pytest.fixture
def webhook():
    with Webhook() as running:
        yield running


def start_alertmanager(folder: Path, webhook: Webhook, port: int) -> subprocess.Popen:
    folder.mkdir()
    config = folder / "alertmanager.yml"
    route = {
        "receiver": "hook",
        "group_by": ["alertname", "slo"],
        "group_wait": "0s",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    hook = {"url": webhook.url, "send_resolved": True}
    receivers = [{"name": "hook", "webhook_configs": [hook]}]
    config.write_text(yaml.safe_dump({"route": route, "receivers": receivers}))
    return subprocess.Popen(
        [
            "prometheus-alertmanager",
            f"--config.file={config}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            "--log.level=error",
        ]
    )


def start_prometheus(
    folder: Path, sidecar_port: int, alertmanager_port: int, port: int
) -> subprocess.Popen:
    folder.mkdir()
    slos = yaml.safe_dump({"slos": SLOS}).encode()
    objectives = expanded(parse(slos, "slos.yaml", {}).slos)
    (folder / "rules.yml").write_text(rules_file(objectives))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "tritonwatch",
                "static_configs": [{"targets": [f"127.0.0.1:{sidecar_port}"]}],
            }
        ],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}
            ]
        },
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
    )


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


def wait_up(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(
                f"http://127.0.0.1:{port}/-/ready", timeout=1
            ).close()
        except OSError:
            assert time.monotonic() < deadline, f"nothing came up on port {port}"
            time.sleep(0.1)
        else:
            return


def test_a_broken_latency_objective_pages_and_resolves_when_it_heals(
    settings, start_sidecar, webhook, tmp_path
) -> None:
    tap_port, alertmanager_port, prometheus_port = free_ports(3)
    arguments = (
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url=http://127.0.0.1:{tap_port}/v1/traces",
        "--trace-config=opentelemetry,bsp_schedule_delay=500",
        "--trace-config=rate=1",
        "--trace-config=level=TIMESTAMPS",
    )
    repository = tmp_path / "models"
    shutil.copytree(MODELS, repository)
    processes: list[subprocess.Popen] = []
    try:
        with EmbeddedTriton(repository, arguments=arguments) as triton:
            config = settings(triton, slos=SLOS)
            config["collectors"].append({"kind": "traces", "interval_seconds": 0.5})
            config["listen"]["tap"] = {"port": tap_port}
            sidecar = start_sidecar(config)
            processes.append(
                start_alertmanager(tmp_path / "am", webhook, alertmanager_port)
            )
            wait_up(alertmanager_port)
            processes.append(
                start_prometheus(
                    tmp_path / "prom", sidecar.port, alertmanager_port, prometheus_port
                )
            )
            wait_up(prometheus_port)
            with Load(triton.grpc) as load:
                time.sleep(6)
                assert not webhook.alerts
                load.delay_ms = 200
                alert = webhook.wait_page("firing", 60)
                assert alert["labels"]["alertname"] == "TritonSLOBurnPage"
                assert alert["labels"]["slo"] == "sleepy-latency"
                load.delay_ms, load.pause_seconds = 1, 0.01
                webhook.wait_page("resolved", 90)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(10)
