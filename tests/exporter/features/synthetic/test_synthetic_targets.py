"""Which protocols a model is probed over, when it is asked again, and what a refusal is."""

from __future__ import annotations

import contextlib

import pytest
from accesses import access_to, board_of
from fake_triton import QUEUE_FULL, UNAVAILABLE, FakeModel, FakeTriton, Hung, Status

from exporter.access.inventory import Inventory
from exporter.features.synthetic.synthetic_probe import SyntheticProbe
from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import ModelSpec, TensorSpec


@pytest.mark.parametrize(
    ("protocols", "decoupled", "asked"),
    [
        (("grpc", "http"), False, ["grpc", "http"]),
        # One stream an interval is dear enough.
        (("grpc", "http"), True, ["grpc"]),
        (("http",), True, ["http"]),
    ],
)
def test_a_decoupled_model_is_asked_once(protocols, decoupled, asked):
    tensor = TensorSpec("x", "FP32", (1,))
    spec = ModelSpec("m", "1", (tensor,), (tensor,), decoupled=decoupled)
    with contextlib.closing(GrpcClient("127.0.0.1:1")) as grpc:
        access = access_to(grpc, http=HttpClient("127.0.0.1:1"))
        probe = SyntheticSettings(protocols=protocols).build(access)
        targets = probe.targets(Inventory(True, True, models={spec.key: spec}))
    assert [target.protocol for target in targets] == asked


def test_a_model_that_was_loaded_again_is_asked_at_once():
    with FakeTriton([FakeModel("m")]) as fake:
        access = access_to(GrpcClient(fake.grpc))
        spec = access.grpc.model_spec("m", "1", timeout_seconds=10)
        probe = SyntheticSettings(timeout_seconds=0.2, linger_seconds=0).build(access)
        assert isinstance(probe, SyntheticProbe)
        fake.on("infer").reply(Hung())

        def asked(loaded_at):
            """Return whether the model is asked, loaded at that time."""
            found = Inventory(True, True, models={spec.key: spec}, loaded_at=loaded_at)
            access.board.publish(found)
            target = probe.targets(found)[0]
            verdict = probe.attempt(target)
            probe.note_verdict(target, verdict)
            return not verdict.is_repeated

        assert [asked({}) for _ in range(3)] == [True, False, True]
        assert [asked({spec.key: 1.0}) for _ in range(2)] == [True, False]
        access.grpc.close()


@pytest.mark.parametrize(
    ("answer", "outcome", "rejected"),
    [
        (QUEUE_FULL, "unavailable", True),
        (UNAVAILABLE, "unavailable", False),
        # What a model may say of a service that it calls.
        (Status("INTERNAL", 500, "Request timeout expired"), "model_error", False),
    ],
    ids=str,
)
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_only_a_queue_rejects(protocol, answer, outcome, rejected):
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(answer)
        client, http = GrpcClient(fake.grpc), HttpClient(fake.http)
        access = access_to(client, http=http, board=board_of(client))
        probe = SyntheticSettings(protocols=[protocol]).build(access)
        (target,) = probe.targets(access.board.current)
        verdict = probe.attempt(target)
        assert (verdict.outcome, verdict.is_rejected) == (outcome, rejected)
        client.close()
        http.close()
