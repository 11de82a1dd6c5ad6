"""Answers that come about when their caller gives up: the server survives our timeouts.

Triton 2.51 ended with signal 11 after some dozen such timeouts of each of these models.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from commands import COMMAND
from load_runs import send
from model_kinds import DECOUPLED, answering, streaming
from small_models import config, write_model
from waiting import patience, wait_until

from exporter.errors import DeadlineError, ModelError, NotSentError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.metadata import model_spec
from loadtests.plan import Entry, Mix
from loadtests.result import Outcome
from loadtests.target import Target

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

TAKES = "time.sleep(np.random.uniform(0.01, 0.02))"
MODELS = {
    "streams": (
        DECOUPLED,
        streaming(
            "sender.send(doubled(request))",
            TAKES,
            "sender.send(doubled(request))",
        ),
    ),
    "bursts": (
        DECOUPLED,
        streaming(
            TAKES,
            "for _ in range(50):",
            "    sender.send(doubled(request))",
        ),
    ),
    "refuses": ("", answering(TAKES, "return refusal('asked to')")),
}
IN_FLIGHT = 2
TIMEOUTS = 60
LOAD_REQUESTS = 1000
NOTES = streaming(
    "open('{begun}', 'w').close()",
    "time.sleep(2)",
    "note = 'cancelled' if sender.is_cancelled() else 'answered'",
    "print(note, file=open('{ended}', 'a'), flush=True)",
)


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """A folder with the notes of a model about its requests."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def server(tmp_path_factory, notes):
    models = tmp_path_factory.mktemp("models")
    code = NOTES.format(begun=notes / "begun", ended=notes / "ended")
    write_model(models, "notes", config(DECOUPLED), code)
    group = f"instance_group [{{ kind: KIND_CPU count: {IN_FLIGHT} }}]"
    for name, (policy, code) in MODELS.items():
        write_model(models, name, config(f"{policy}\n{group}"), code)
    with EmbeddedTriton(models) as server:
        yield server


@pytest.mark.parametrize("model", MODELS)
def test_a_timeout_as_the_answer_comes_does_not_crash_the_server(server, model):
    inputs = {"x": np.ones(1, np.float32)}, {"x": "FP32"}
    request = InferRequest(model, "1", "c", *inputs)

    def run(seed):
        """Give up so many requests, one at a time: a client cancels too many at once."""
        client, chance, late = GrpcClient(server.grpc), np.random.default_rng(seed), 0
        ask = client.infer if model == "refuses" else client.infer_stream
        while late < TIMEOUTS:
            with contextlib.suppress(ModelError, NotSentError):
                try:
                    ask(request, timeout_seconds=chance.uniform(0.01, 0.03))
                except DeadlineError:
                    late += 1
            wait_until(lambda: not client.is_waiting(model))
        client.close()

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(run, range(IN_FLIGHT)))


@pytest.mark.parametrize("model", MODELS)
def test_the_timeouts_of_a_load_run_do_not_crash_the_server(server, model):
    target = Target("grpc", server.grpc)
    spec = model_spec(target, model)
    body = body_of(spec, Row({"x": np.ones(1, np.float32)}), "grpc")
    style = "stream" if spec.decoupled else "unary"
    timeouts = 0
    while timeouts < TIMEOUTS:
        result = send(
            target,
            Mix((Entry(model, spec, (body,), style=style),)),
            LOAD_REQUESTS,
            concurrency=IN_FLIGHT,
            timeout_seconds=0.02,
        )
        assert not result.unanswered.count, result.errors
        assert server.running
        timeouts += result.requests.count(Outcome.TIMEOUT)


def test_a_sidecar_that_ends_waits_for_a_late_answer(
    server, notes, settings, start_sidecar
):
    """A process that ends cancels its requests, as a closed connection does."""
    probe = {"models": {"include": ["notes"]}, "timeout_seconds": 0.1}
    probe["linger_seconds"] = 0.0
    sidecar = start_sidecar(settings(server, probe=probe))
    sidecar.wait(lambda page: page.sum("triton_probe_total", outcome="timeout") > 0)
    assert (notes / "begun").exists()
    assert sidecar.end()[0] == 0
    assert outcomes(notes) == {"answered"}


def test_an_audit_that_is_terminated_waits_for_a_late_answer(
    server, notes, settings, tmp_path
):
    for note in notes.iterdir():
        note.unlink()
    file = tmp_path / "audit.yaml"
    probe = {"models": {"include": ["notes"]}, "timeout_seconds": 60.0}
    file.write_text(json.dumps(settings(server, probe=probe)), "utf-8")
    arguments = ["audit", "--config", file, "--duration", "60"]
    with subprocess.Popen([COMMAND, *arguments]) as process:
        wait_until((notes / "begun").exists, "the model was not asked")
        process.terminate()
        assert process.wait(patience()) == 128 + signal.SIGTERM
    assert outcomes(notes) == {"answered"}


def outcomes(notes):
    """Return the notes that the model wrote at the end of its requests, once there are any."""
    ended = notes / "ended"
    wait_until(ended.exists, "the model was never done")
    return set(ended.read_text("utf-8").split())
