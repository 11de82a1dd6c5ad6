"""Models slower than the probe's timeout: not harmed by it, and not dead while clients are served."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.request

import numpy as np
import pytest
from model_kinds import answering
from production import Production
from sidecars import Page
from small_models import config, write_model

from exporter.errors import TritonError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

SECONDS = 1.5
SLOW = answering(f"time.sleep({SECONDS})", "return doubled(request)")
PROBE = {"interval_seconds": 0.5, "timeout_seconds": 0.2, "linger_seconds": 0.2}


HANGS = """
import os
while os.path.exists("{}"):
    time.sleep(0.02)
return doubled(request)
"""


@pytest.fixture
def hang(tmp_path):
    """A file while which is there, the model `hangs` does."""
    return tmp_path / "hang"


@pytest.fixture
def server(tmp_path, hang):
    write_model(tmp_path / "models", "slow", config(), SLOW)
    hangs = answering(*HANGS.format(hang).strip().splitlines())
    write_model(tmp_path / "models", "hangs", config(), hangs)
    batching = "dynamic_batching { default_queue_policy { max_queue_size: 2 } }"
    queued = config(batching).replace("max_batch_size: 0", "max_batch_size: 1")
    takes = answering("time.sleep(0.2)", *HANGS.format(hang).strip().splitlines())
    write_model(tmp_path / "models", "queued", queued, takes)
    with EmbeddedTriton(tmp_path / "models") as server:
        yield server


class Client(Production):
    """Production whose users always have a request under way."""

    def __init__(self, grpc, model="slow", shape=(1,), users=1):
        super().__init__(grpc, pause_seconds=0.01, users=users)
        self.model, self.shape = model, shape

    def ask(self, user):  # noqa: ARG002 - all are alike
        inputs = {"x": np.ones(self.shape, np.float32)}, {"x": "FP32"}
        request = InferRequest(self.model, "1", "client", *inputs)
        with contextlib.suppress(TritonError):
            self.client.infer(request, timeout_seconds=20)


def requests_at(server):
    """Requests that the server has answered, or that wait in it."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as answer:
        page = Page(answer.read())
    counts = ("request_success", "request_failure", "pending_request_count")
    return sum(page.sum(f"nv_inference_{name}", model="slow") for name in counts)


def test_probes_of_a_slow_model_do_not_fill_its_queue(server, settings, start_sidecar):
    sidecar = start_sidecar(settings(server, probe=PROBE))
    page = sidecar.wait(
        lambda p: p.sum("triton_probe_total", model="slow", outcome="timeout") >= 6
    )
    # The model answers one in 1.5 s, and those that were given up still wait for it.
    assert requests_at(server) <= 12
    assert page.value("triton_model_serving", model="slow", version="1") == 0
    with Client(server.grpc):
        sidecar.wait(
            lambda p: p.value("triton_model_serving", model="slow", version="1") == 1
        )
        models = json.loads(sidecar.get("/api/v1/status").body)["models"]
        assert [m["state"] for m in models if m["model"] == "slow"] == ["SLOW"]


def test_a_model_that_recovers_is_asked_before_its_turn(
    hang, server, settings, start_sidecar
):
    kind = {**PROBE, "kind": "synthetic", "models": {"include": ["hangs"]}}
    probes = [{**kind, "name": name, "protocols": [name]} for name in ("grpc", "http")]
    hang.touch()
    sidecar = start_sidecar(settings(server, probes=probes))

    def timeouts(page, name):
        return page.sum("triton_probe_total", probe=name, outcome="timeout")

    sidecar.wait(lambda p: all(timeouts(p, n) >= 7 for n in ("grpc", "http")))
    hang.unlink()
    recovered = time.monotonic()
    # Of requests that were given up only Triton's statistics show that they ended.
    sidecar.wait(lambda p: p.values("triton_probe_success") == [1, 1])
    turn_seconds = 64 * PROBE["interval_seconds"]
    assert time.monotonic() - recovered < turn_seconds / 2


def test_a_model_whose_queue_is_full_is_slow_and_down_only_once_it_hangs(
    hang, server, settings, start_sidecar
):
    probe = {**PROBE, "timeout_seconds": 2.0, "models": {"include": ["queued"]}}
    sidecar = start_sidecar(settings(server, probe=probe))
    serving = "triton_model_serving"
    sidecar.wait(lambda page: page.values(serving) == [1])

    def probes(page, *outcomes):
        return sum(page.sum("triton_probe_total", outcome=o) for o in outcomes)

    with Client(server.grpc, "queued", (1, 1), users=6):
        # The first may come before any read of the statistics.
        first = sidecar.wait(lambda page: probes(page, "backlog"))
        page = sidecar.wait(lambda page: probes(page, "unavailable", "backlog") >= 20)
        assert probes(page, "unavailable") <= probes(first, "unavailable") + 2
        assert page.values(serving) == [1]
        # Triton counts none that the full queue refuses.
        served = page.sum("triton_requests_total", model="queued", outcome="success")
        unknown = page.sum("triton_unattributed_requests_total", model="queued")
        assert served > 5 * unknown
        hang.touch()
        sidecar.wait(lambda page: page.values(serving) == [0])
        hang.unlink()


def test_a_hung_model_is_not_asked_more_often_by_a_server_that_answers_late(
    hang, server, settings, start_sidecar
):
    probe = {**PROBE, "models": {"include": ["hangs"]}}
    hang.touch()
    sidecar = start_sidecar(settings(server, probe=probe))

    def sent(page):
        return page.sum("triton_probe_total", model="hangs", outcome="timeout")

    sidecar.wait(lambda page: sent(page) >= 5)
    for _ in range(6):
        # Not its backends: their silence can abort it.
        os.kill(server.pid, signal.SIGSTOP)
        sidecar.wait(lambda page: page.value("triton_up") == 0)
        os.kill(server.pid, signal.SIGCONT)
        sidecar.wait(lambda page: page.value("triton_up") == 1)
        time.sleep(2)
    # It still has them all, and only these: the next two in turn, and one early for each.
    assert sent(sidecar.page()) <= 9
    hang.unlink()
    sidecar.wait(lambda page: page.values("triton_model_serving") == [1])
