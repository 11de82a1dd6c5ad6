"""Accounting for requests to a model that calls others, on a server whose counts are set."""

from __future__ import annotations

import pytest
from accesses import access_to
from fake_triton import UNAVAILABLE, FakeModel, FakeTriton

from exporter import errors
from exporter.access.footprints import Footprints
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.own_traffic import HELD_BACK, Booking, OwnTraffic
from exporter.own_requests.reach import own_inference
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest, ModelSpec

PARENT = ModelSpec("parent", "1", (), (), backend="python")
CHILD = ModelSpec("child", "1", (), (), backend="onnxruntime")
REQUEST = InferRequest("parent", "1", "tritonwatch-x", {}, {})


class Asking:
    """Requests to `parent` that call `child` as often as told."""

    def __init__(self, fake):
        self.fake = fake
        self.grpc = GrpcClient(fake.grpc)
        self.own = OwnTraffic(run_id="test", footprints=Footprints(space_seconds=0.0))
        board = InventoryBoard()
        models = {(spec.name, spec.version): spec for spec in (PARENT, CHILD)}
        board.publish(Inventory(up=True, ready=True, models=models))
        self.access = access_to(self.grpc, board=board, own=self.own)

    def ask(self, calls=1, spec=PARENT, within_seconds=60.0, error=None):
        with own_inference(self.access, spec, REQUEST, within_seconds=within_seconds):
            self.fake.served(spec.name, 1)
            if calls:
                self.fake.served("child", calls)
            if error is not None:
                raise error

    @property
    def child(self):
        return self.own.counts(("child", "1"))


@pytest.fixture
def asking(monkeypatch):
    # A busy machine is no server without an answer.
    monkeypatch.setattr("exporter.own_requests.reach._READ_SECONDS", 10.0)
    with FakeTriton([FakeModel("parent"), FakeModel("child")]) as fake:
        scene = Asking(fake)
        yield scene
        scene.grpc.close()


def test_calls_are_held_back_until_they_are_known_and_are_ours_from_then_on(asking):
    for number in range(1, 6):
        asking.ask(calls=2)
        assert asking.child.possible == Booking()
        assert asking.own.waiting()["child", "1"].requests == 2 * number
    for number in (6, 7, 8):
        asking.ask(calls=2)
        assert asking.child.possible.requests == 2 * number
        assert asking.own.waiting() == {}


def test_production_that_rose_beside_requests_is_given_back(asking):
    for calls in (1, 5, 1, 9, 1, 1, 3, *[1] * 9):
        asking.ask(calls)
    assert asking.own.waiting() == {}
    assert asking.child.possible.requests == 16


def test_while_calls_are_unknown_a_part_of_every_rise_is_held_back(asking):
    with own_inference(asking.access, PARENT, REQUEST, within_seconds=60.0):
        assert asking.own.held_back() == HELD_BACK
    assert asking.own.held_back() == 0


def test_a_model_that_calls_nothing_is_asked_without_reading_statistics(asking):
    for _ in range(2):
        asking.ask(calls=0)
    reads = asking.fake.received("statistics")
    for _ in range(5):
        asking.ask(calls=0)
    assert asking.fake.received("statistics") == reads
    assert asking.child.possible == Booking()


def test_other_backends_are_taken_to_call_nothing(asking):
    asking.ask(calls=0, spec=CHILD)
    assert asking.fake.received("statistics") == 0


def test_a_request_that_took_its_time_is_not_made_longer(asking):
    asking.ask(within_seconds=0.2)
    assert asking.fake.received("statistics") == 1
    assert asking.own.waiting() == {}


def test_after_a_request_without_an_answer_nothing_is_read_until_there_is_one(asking):
    with pytest.raises(errors.DeadlineError):
        asking.ask(error=errors.DeadlineError("late"))
    reads = asking.fake.received("statistics")
    asking.ask()
    assert asking.fake.received("statistics") == reads
    asking.ask()
    assert asking.fake.received("statistics") == reads + 2


def test_statistics_that_cannot_be_read_delay_what_is_learnt_and_nothing_else(asking):
    asking.fake.on("statistics").reply(UNAVAILABLE)
    asking.ask()
    asking.fake.behave()
    for _ in range(6):
        asking.ask()
    assert asking.child.possible.requests == 6
