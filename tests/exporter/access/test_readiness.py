"""Readiness as servers and models report it, on old and new versions of Triton."""

from __future__ import annotations

import threading
import time

import pytest
from accesses import access_to
from fake_triton import FakeModel, FakeTriton, Hung, Status, many
from waiting import patience

from exporter import errors
from exporter.access import readiness
from exporter.access.readiness import ReadinessAsker, ReadinessHold
from exporter.features.discovery.server_collector import ServerSettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ServerInfo

A = ("a", "1")
OLD, NEW, NEWEST = "2.51.0", "2.65.0", "2.70.0"


class Scene:
    """A server collector on a FakeTriton whose clock a test moves."""

    def __init__(self, fake, **settings):
        self.moved = 0.0
        self.grpc = GrpcClient(fake.grpc)
        clock = lambda: time.monotonic() + self.moved  # noqa: E731
        self.access = access_to(self.grpc, clock=clock, readiness=ReadinessHold(clock))
        chosen = {"timeout_seconds": 1.0} | settings
        self.collector = ServerSettings(**chosen).build(self.access)

    def read(self, after_seconds=0.0):
        self.moved += after_seconds
        return {(s.spec.name, s.labels): s.value for s in self.collector.collect()}

    def read_until(self, holds):
        """Read again and again, as the sidecar does, until something holds."""
        ends = time.monotonic() + patience()
        while True:
            try:
                said = self.read()
            except errors.DeadlineError:
                said = {}
            if said and holds(said):
                return said
            assert time.monotonic() < ends, said
            time.sleep(0.1)


@pytest.fixture
def scenes():
    ends = []

    def make(version, models=None, **options):
        fake = FakeTriton(
            models or [FakeModel("a"), FakeModel("b")], version=version, **options
        )
        scene = Scene(fake)
        ends.append((scene, fake))
        return scene, fake

    yield make
    for scene, fake in ends:
        scene.grpc.close()
        fake.stop()


@pytest.mark.parametrize(
    ("version", "server", "model"), [(OLD, 1, 1), (NEW, 0, 0), (NEWEST, 0, 0)]
)
def test_a_dead_stub_shows_in_readiness_from_2_65_on(scenes, version, server, model):
    scene, fake = scenes(version)
    assert scene.read()["triton_model_ready", A] == 1
    fake.kill_stub("a")
    said = scene.read()
    assert said["triton_ready", ()] == server
    assert said["triton_model_ready", A] == model
    assert said["triton_model_ready", ("b", "1")] == 1
    assert said["triton_models_denying_readiness", ()] == 1 - model
    # It is probed all the same: the index lists it.
    assert A in scene.access.board.current.models
    fake.unload("a")
    fake.load("a")
    said = scene.read()
    assert said["triton_ready", ()] == said["triton_model_ready", A] == 1
    assert said["triton_models_denying_readiness", ()] == 0


def test_without_strict_readiness_only_the_model_is_not_ready(scenes):
    scene, fake = scenes(NEWEST, strict_readiness=False)
    fake.kill_stub("a")
    said = scene.read()
    assert said["triton_ready", ()] == 1
    assert said["triton_model_ready", A] == 0


def test_readiness_that_hangs_costs_nothing_else(scenes, monkeypatch):
    scene, fake = scenes(NEWEST)
    assert scene.read()["triton_ready", ()] == 1
    fake.hang_is_ready("a")
    said = scene.read_until(
        lambda said: said.get(("triton_model_readiness_timeouts_total", A))
    )
    assert said["triton_up", ()] == 1
    assert said["triton_ready", ()] == said["triton_model_ready", A] == 0
    # Only the model that hangs is to blame.
    assert said["triton_model_ready", ("b", "1")] == 1
    assert ("triton_model_readiness_timeouts_total", ("b", "1")) not in said
    # From now on it is asked rarely: what else is asked is answered at once.
    scene.read_until(lambda _: not scene.access.readiness.held_up(scene.access.clock()))
    asked = fake.received("model_ready", model="a") + fake.received("server_ready")
    for _ in range(10):
        started = time.monotonic()
        assert scene.read()["triton_up", ()] == 1
        assert time.monotonic() - started < patience(4)
    now = fake.received("model_ready", model="a") + fake.received("server_ready")
    assert now == asked
    # And when it answers again, it is ready again.
    fake.hang_is_ready("a", hangs=False)
    scene.moved += readiness.MAX_BACKOFF_SECONDS
    said = scene.read_until(lambda said: said["triton_ready", ()] == 1)
    assert said["triton_model_ready", A] == 1


def test_calls_that_wait_behind_a_hanging_question_are_known_to(scenes):
    scene, fake = scenes(NEWEST)
    scene.read()
    fake.hang_is_ready("a")
    since = scene.access.clock()
    assert not scene.access.readiness.held_up(since)
    question = threading.Thread(target=scene.read)
    question.start()
    fake.wait_for("server_ready", count=2)
    with pytest.raises(errors.DeadlineError):
        scene.grpc.statistics(timeout_seconds=2)
    assert scene.access.readiness.held_up(since)
    question.join()


@pytest.mark.parametrize("version", [OLD, NEW, NEWEST])
def test_a_server_that_is_frozen_is_down_and_not_held_up(scenes, version):
    scene, fake = scenes(version)
    assert scene.read()["triton_up", ()] == 1
    fake.on("any").reply(Hung())
    said = scene.read()
    assert said["triton_up", ()] == said["triton_ready", ()] == 0
    fake.behave()
    said = scene.read_until(lambda said: said["triton_up", ()] == 1)
    assert said["triton_ready", ()] == said["triton_model_ready", A] == 1


def test_every_one_of_many_models_is_asked_in_parallel_and_bounded(scenes):
    scene, fake = scenes(NEWEST, models=many(300))
    said = scene.read_until(lambda _: fake.received("model_ready") >= 300)
    assert (
        sum(v for (name, _), v in said.items() if name == "triton_model_ready") == 300
    )
    assert fake.peak("model_ready") <= readiness.MAX_IN_FLIGHT


def test_a_server_without_the_call_is_taken_at_its_index(scenes):
    scene, fake = scenes(OLD)
    fake.on("model_ready").reply(Status("UNIMPLEMENTED", 501, "no such call"))
    assert scene.read()["triton_model_ready", A] == 1


def test_a_model_that_left_is_forgotten(scenes):
    scene, _fake = scenes(NEWEST)
    asker = ReadinessAsker(scene.grpc, ReadinessHold(), time.monotonic)
    assert asker.ask([A], seconds=5, may_hang=True).models == {A: True}
    found = asker.ask([], seconds=5, may_hang=True)
    assert found.models == {}
    assert found.server is True


@pytest.mark.parametrize(
    ("name", "extensions", "version", "numbers"),
    [
        ("triton", (), "2.70.0", (2, 70, 0)),
        ("triton", (), "2.51.0dev", (2, 51, 0)),
        ("renamed by --id", ("schedule_policy",), "2.65.0", (2, 65, 0)),
        ("mlserver", (), "1.7.0", None),
        ("triton", (), "unknown", None),
    ],
)
def test_a_version_is_one_of_triton_only(name, extensions, version, numbers):
    assert ServerInfo(name, version, extensions).numbers == numbers
