"""On a real Triton: backlogs and odd names, which say nothing about a model being dead."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pytest
from accesses import access_to
from small_models import (
    config,
    ensemble_of,
    kill_stub,
    sequence_batching,
    write_model,
)
from waiting import patience

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.errors import TritonError
from exporter.features.synthetic.synthetic_probe import SyntheticProbe
from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.runtime.probe_meter import ProbeMeter
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

NAMES = ("a+b", "a:b", "a@b", "a=b", "a,b", "a!b", "a&b", "a(b)", "a'b", "a~b")
UNREACHABLE = ("a%b", "a b", "aüb", "a#b")
IDLE_SECONDS = 6
SEQUENCES = {
    name: sequence_batching(strategy, "TYPE_UINT64", idle=IDLE_SECONDS)
    for name, strategy in (
        ("direct", "direct {}"),
        ("pausing", "direct {}"),
        ("oldest", "oldest { max_candidate_sequences: 2 }"),
    )
}


MODELS = {
    **{name: config(section) for name, section in SEQUENCES.items()},
    "around_direct": ensemble_of("direct"),
    "optional": config(input_options="optional: true"),
    # Triton starts the stubs of Python models through a shell that such names break.
    "named": config(),
    **{name: ensemble_of("named") for name in (*NAMES, *UNREACHABLE)},
}


class Probed:
    """The default probe of one model, attempt by attempt, and what it adds up to."""

    def __init__(self, server, model, **settings):
        self.grpc, self.http = GrpcClient(server.grpc), HttpClient(server.http)
        models = {
            (e.name, e.version): self.grpc.model_spec(
                e.name, e.version, timeout_seconds=10
            )
            for e in self.grpc.repository_index(timeout_seconds=10)
        }
        board = InventoryBoard()
        info = self.grpc.server_info(timeout_seconds=10)
        board.publish(Inventory(up=True, ready=True, info=info, models=models))
        access = access_to(self.grpc, http=self.http, board=board)
        chosen = {
            "interval_seconds": 0.5,
            "timeout_seconds": 0.5,
            "linger_seconds": 0.5,
            "models": {"include": [model]},
        }
        made = SyntheticSettings.model_validate(chosen | settings).build(access)
        assert isinstance(made, SyntheticProbe)
        self.probe = made
        self.targets = self.probe.targets(board.current)
        self.meter = ProbeMeter("p", 60, time.time)
        self.key = (model, "1")

    def attempt(self):
        """One attempt by each protocol; the outcomes."""
        verdicts = [self.probe.attempt(target) for target in self.targets]
        for target, verdict in zip(self.targets, verdicts, strict=True):
            self.meter.record(target, verdict, time.monotonic())
            self.probe.note_verdict(target, verdict)
        return {verdict.outcome for verdict in verdicts}

    def wait(self, outcomes):
        """Attempt until all outcomes are these."""
        deadline = time.monotonic() + patience()
        while (found := self.attempt()) != outcomes:
            assert time.monotonic() < deadline, f"{found}, not {outcomes}"
            time.sleep(0.1)

    @property
    def serving(self):
        return self.meter.serving(time.monotonic(), 60).get(self.key)

    def close(self):
        self.grpc.close()
        self.http.close()


@pytest.fixture
def probing():
    with contextlib.ExitStack() as stack:

        def start(*args, **settings):
            probed = Probed(*args, **settings)
            stack.callback(probed.close)
            return probed

        yield start


@pytest.fixture(scope="module")
def server(triton_environment, tmp_path_factory):
    """A server of all models, each asked by one test."""
    models = tmp_path_factory.mktemp("unproven") / "models"
    for name, text in MODELS.items():
        write_model(models, name, text)
    # A Triton that was given a name of its own decodes no escapes in paths either.
    arguments = ("--id", "fraud")
    with EmbeddedTriton(
        models, environment=triton_environment, arguments=arguments
    ) as started:
        yield started


class Holders:
    """Production clients, each in a sequence that it does not end before `end`."""

    def __init__(self, server, model, count, pause_seconds=0.05):
        self._pause_seconds = pause_seconds
        self._over = threading.Event()
        self._ready = threading.Barrier(count + 1)
        self.answered = 0
        self._clients = [
            threading.Thread(target=self._hold, args=(server.grpc, model, 100 + n))
            for n in range(count)
        ]

    def __enter__(self):
        for client in self._clients:
            client.start()
        self._ready.wait(patience())
        return self

    def __exit__(self, *_):
        self._over.set()
        for client in self._clients:
            client.join(patience())

    def _hold(self, address, model, number):
        client = GrpcClient(address)
        self._ask(client, model, number, start=True)
        self._ready.wait(patience())
        while not self._over.wait(self._pause_seconds):
            with contextlib.suppress(TritonError):
                self._ask(client, model, number)
                self.answered += 1
        with contextlib.suppress(TritonError):
            self._ask(client, model, number, end=True)
        client.close()

    def _ask(self, client, model, number, *, start=False, end=False):
        client.infer(
            InferRequest(
                model,
                "1",
                f"client-{number}",
                {"x": np.zeros(1, np.float32)},
                {"x": "FP32"},
                {
                    "sequence_id": number,
                    "sequence_start": start,
                    "sequence_end": end,
                },
            ),
            timeout_seconds=10 if start else 2,
        )


@pytest.mark.parametrize(
    ("held", "slots", "asked", "pause_seconds"),
    [
        ("direct", 1, "around_direct", 0.05),
        ("oldest", 2, "oldest", 0.05),
        ("pausing", 1, "pausing", IDLE_SECONDS - 2),
    ],
)
def test_a_probe_behind_productions_sequences_is_a_backlog_and_a_dead_stub_is_none(
    server, probing, held, slots, asked, pause_seconds
) -> None:
    probed = probing(server, asked)
    probed.wait({"ok"})
    with Holders(server, held, slots, pause_seconds):
        for _ in range(12):
            assert probed.attempt() <= {"backlog"}
            assert probed.serving is True
    probed.wait({"ok"})
    with Holders(server, held, slots, pause_seconds) as holders:
        probed.wait({"backlog"})
        kill_stub(server, held)
        dead_since = holders.answered
        deadline = time.monotonic() + patience()
        while probed.serving is not False:
            probed.attempt()
            assert time.monotonic() < deadline
        for _ in range(3):
            assert not probed.attempt() & {"ok", "backlog"}
        assert holders.answered <= dead_since + slots


def test_a_model_whose_inputs_are_all_optional_is_sent_them(server, probing) -> None:
    probed = probing(server, "optional", timeout_seconds=10)
    assert probed.attempt() == {"ok"}


@pytest.mark.parametrize("name", [*NAMES, *UNREACHABLE])
def test_names_that_may_stand_in_a_path_are_probed_over_http(
    server, probing, name
) -> None:
    probed = probing(server, name, timeout_seconds=10)
    assert probed.attempt() == {"ok"}
    protocols = {target.protocol for target in probed.targets}
    assert protocols == ({"grpc"} if name in UNREACHABLE else {"grpc", "http"})
