"""Only the sidecar asks: whatever the models do with its requests, production is zero.

On the real Triton, with one model of every kind of `model_kinds`. What cannot be known is
in triton_unattributed_requests_total, and nowhere else.
"""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
from model_kinds import CODES, KINDS, write_kinds

from exporter.errors import ModelError
from exporter.triton import backend
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(900)]

PROBES = 12
# Two cores run some fifty models, their server and the sidecar.
PROBE = {"interval_seconds": 5.0, "timeout_seconds": 1.5, "linger_seconds": 0.5}
PRODUCTION = (
    "triton_requests_total",
    "triton_inferences_total",
    "triton_executions_total",
    "triton_batch_size_count",
    "triton_model_busy_seconds_total",
    "triton_model_queue_seconds_total",
    "triton_model_request_seconds_total",
    "triton_model_compute_seconds_total",
)
UNATTRIBUTED = "triton_unattributed_requests_total"
AS_SUCCESS = "triton_failures_booked_as_success_total"


@pytest.fixture(scope="module")
def server(tmp_path_factory, triton_environment):
    repository = tmp_path_factory.mktemp("kinds") / "models"
    write_kinds(repository)
    site = backend.inspect(triton_environment).site
    caches = site / "pytriton/tritonserver/caches"
    arguments = [f"--cache-directory={caches}", "--cache-config=local,size=1048576"]
    with EmbeddedTriton(
        repository, arguments=arguments, ready_timeout_seconds=240
    ) as triton:
        yield triton


@pytest.fixture(scope="module")
def sidecar(server, settings, sidecar_process, tmp_path_factory):
    """A sidecar that has probed every model."""
    config = settings(server, probe=PROBE)
    config["collectors"][1]["learn_calls"] = True
    sidecar = sidecar_process(config, tmp_path_factory.mktemp("sidecar"))
    try:
        sidecar.wait_listening()

        def probed(page):
            return all(
                page.sum("triton_probe_total", model=name) >= PROBES for name in KINDS
            )

        sidecar.wait(probed, 240)
        yield sidecar
    finally:
        sidecar.close()


@pytest.fixture(scope="module")
def observed(sidecar):
    """Two pages, some looks apart."""
    return [sidecar.settle(2), sidecar.settle(8)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_sidecar_asks_is_no_production(observed, kind):
    for page in observed:
        shown = {
            name: page.values(name, model=kind)
            for name in PRODUCTION
            if any(page.values(name, model=kind))
        }
        assert not shown
        # The series are there: nothing is zero for being absent.
        assert page.values("triton_requests_total", model=kind) == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["slow", "sequence", "decoupled", "queue_delays"])
def test_where_every_request_succeeds_nothing_is_left_unattributed(observed, kind):
    # Until it is known which models call others, any of them may be called.
    first, later = (page.value(UNATTRIBUTED, model=kind) for page in observed)
    assert later == first


@pytest.mark.parametrize("code", CODES)
def test_failures_that_triton_books_as_successes_are_caught(sidecar, observed, code):
    # They can be told where nothing of ours is under way or undecided at a look.
    model = f"answers_{code.lower()}"
    sidecar.wait(lambda page: page.value(AS_SUCCESS, model=model) > 0, 180)


@pytest.mark.parametrize("kind", ["good", "raises", "slow", "child", "calls"])
def test_nothing_else_is_taken_for_a_failure_booked_as_success(observed, kind):
    assert observed[-1].value(AS_SUCCESS, model=kind) == 0


@pytest.mark.parametrize("kind", ["child", "raises", "answers_internal", "cached"])
def test_production_lies_between_what_is_counted_and_what_is_unattributed(
    server, sidecar, observed, kind
):
    def counted(page):
        return page.sum("triton_requests_total", model=kind)

    before = sidecar.settle(3)
    assert counted(before) == 0
    sent = 200
    sender = threading.Thread(target=send, args=(server, kind, sent))
    sender.start()
    sender.join()

    def unattributed(page):
        return page.sum(UNATTRIBUTED, model=kind) - before.sum(UNATTRIBUTED, model=kind)

    # While calls are still being learnt, some of a rise is held back for a while.
    sidecar.wait(lambda p: counted(p) + unattributed(p) >= sent, 60)
    page = sidecar.settle(4)
    assert sent / 2 < counted(page) <= sent


def send(server, model, count):
    client = GrpcClient(server.grpc)
    for number in range(count):
        x = {"x": np.array([number], np.float32)}
        # Some kinds fail; Triton counts every one of them.
        with contextlib.suppress(ModelError):
            client.infer(
                InferRequest(model, "", "client", x, {"x": "FP32"}), timeout_seconds=20
            )
    client.close()
