"""Models slower than the probe's timeout: not harmed by it, and not dead while clients are served."""

from __future__ import annotations

import contextlib
import threading
import urllib.request

import numpy as np
import pytest
from model_kinds import answering
from sidecars import Page
from small_models import config, write_model

from exporter.errors import TritonError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

SECONDS = 1.5
SLOW = answering(f"time.sleep({SECONDS})", "return doubled(request)")
PROBE = {"interval_seconds": 0.5, "timeout_seconds": 0.2, "linger_seconds": 0.2}


@pytest.fixture
def server(tmp_path):
    write_model(tmp_path / "models", "slow", config(), SLOW)
    with EmbeddedTriton(tmp_path / "models") as server:
        yield server


@pytest.fixture
def clients(server):
    """Start a client that always has one request under way."""
    ended, threads = threading.Event(), []

    def run():
        client = GrpcClient(server.grpc)
        inputs = {"x": np.ones(1, np.float32)}, {"x": "FP32"}
        while not ended.is_set():
            request = InferRequest("slow", "1", "c", *inputs)
            with contextlib.suppress(TritonError):
                client.infer(request, timeout_seconds=20)
        client.close()

    def start():
        threads.append(threading.Thread(target=run))
        threads[0].start()

    yield start
    ended.set()
    for thread in threads:
        thread.join()


def requests_at(server):
    """Requests that the server has answered, or that wait in it."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as answer:
        page = Page(answer.read())
    counts = ("request_success", "request_failure", "pending_request_count")
    return sum(page.sum(f"nv_inference_{name}", model="slow") for name in counts)


def test_probes_of_a_slow_model_do_not_fill_its_queue(
    server, clients, settings, start_sidecar
):
    sidecar = start_sidecar(settings(server, probe=PROBE))
    page = sidecar.wait(
        lambda p: p.sum("triton_probe_total", model="slow", outcome="timeout") >= 6
    )
    # The model answers one in 1.5 s, and those that were given up still wait for it.
    assert requests_at(server) <= 12
    assert page.value("triton_model_serving", model="slow", version="1") == 0
    clients()
    sidecar.wait(
        lambda p: p.value("triton_model_serving", model="slow", version="1") == 1
    )
