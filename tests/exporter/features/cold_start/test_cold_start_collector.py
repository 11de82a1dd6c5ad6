"""Cold starts beside a scripted server: what a failed poll shows, and models that load together."""

from __future__ import annotations

import pytest
from accesses import access_to
from clocks import Clock
from fake_triton import UNAVAILABLE, FakeModel, FakeTriton, Slow
from structlog.testing import capture_logs

from exporter.errors import TritonError
from exporter.features.cold_start.cold_start_collector import ColdStartSettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import IndexEntry

LOAD, FIRST = "triton_model_load_seconds", "triton_model_first_inference_seconds"
COLD = "triton_model_cold_inference_seconds"
NAMES = ("a", "b", "c")


class Listing(GrpcClient):
    """Lists the models in `state`, which the fake cannot be in."""

    state = "READY"

    def repository_index(self, *, timeout_seconds):
        found = super().repository_index(timeout_seconds=timeout_seconds)
        return tuple(IndexEntry(e.name, "1", self.state) for e in found)


class Scene:
    def __init__(self, fake):
        self.fake, self.clock = fake, Clock(1000.0)
        self.client = Listing(fake.grpc)
        access = access_to(self.client, clock=self.clock)
        self.collector = ColdStartSettings(timeout_seconds=10).build(access)

    def polled(self, state="READY", times=1):
        """The samples by name and model after polls, a second apart."""
        self.client.state = state
        for _ in range(times):
            samples = self.collector.collect()
            self.clock.now += 1
        return {(s.spec.name, s.labels[0]): s.value for s in samples}

    def fail_once(self):
        self.fake.on("repository_index").reply(UNAVAILABLE, times=1)
        with pytest.raises(TritonError):
            self.collector.collect()


@pytest.fixture
def scene():
    with FakeTriton([FakeModel(name) for name in NAMES]) as fake:
        scene = Scene(fake)
        yield scene
        scene.client.close()


def loaded(scene):
    """The samples after all models loaded for two seconds and were asked."""
    scene.polled("LOADING", 2)
    return scene.polled(times=len(NAMES) + 1)


def test_one_failed_poll_is_no_restart(scene):
    before = loaded(scene)
    scene.fail_once()
    assert scene.polled(times=len(NAMES) + 1) == before
    assert scene.fake.received("infer") == len(NAMES)


def test_models_without_requests_were_loaded_anew_while_the_server_was_away(scene):
    before = loaded(scene)
    scene.fake.load("a")  # its statistics start over
    scene.fail_once()
    after = scene.polled(times=len(NAMES) + 1)
    # When that load began nobody saw.
    assert (LOAD, "a") not in after
    assert (FIRST, "a") not in after
    assert after[COLD, "a"] != before[COLD, "a"]
    assert {k: v for k, v in after.items() if k[1] != "a"} == {
        k: v for k, v in before.items() if k[1] != "a"
    }


def test_what_cannot_be_told_yet_is_asked_again(scene):
    before = loaded(scene)
    scene.fake.load("a")
    scene.fail_once()
    scene.fake.on("statistics").reply(UNAVAILABLE, times=1)
    with pytest.raises(TritonError):
        scene.polled()
    assert scene.polled(times=2)[COLD, "a"] != before[COLD, "a"]


def test_models_that_load_together_do_not_wait_for_each_other_in_the_figures(scene):
    scene.fake.on("infer").reply(Slow(0.05))
    found = loaded(scene)
    for name in NAMES:
        assert found[LOAD, name] == 2
        assert found[FIRST, name] == 2 + found[COLD, name]


@pytest.mark.parametrize(
    "states",
    [("UNLOADING",), ("UNAVAILABLE",), ("UNAVAILABLE", "LOADING", "UNAVAILABLE")],
)
def test_a_load_that_no_poll_saw_has_no_duration(scene, states):
    before = loaded(scene)
    for state in states:
        scene.polled(state)
    scene.clock.now += 5000
    after = scene.polled(times=len(NAMES) + 1)
    assert [key for key in after if key[0] != COLD] == []
    assert after[COLD, "a"] != before[COLD, "a"]


def test_a_failed_load_is_not_the_beginning_of_the_next_one(scene):
    scene.polled("LOADING", 2)
    scene.polled("UNAVAILABLE")
    scene.clock.now += 5000
    assert {name for name, _ in scene.polled(times=2)} == {COLD}


def test_a_first_request_without_an_answer_is_an_event_of_its_model(scene):
    scene.fake.on("infer").reply(UNAVAILABLE, times=1)
    scene.polled("LOADING")
    with capture_logs() as events:
        scene.polled(times=2)
    (event,) = (e for e in events if e["event"] == "cold_start_unanswered")
    assert event["model"] in NAMES
    assert event["version"] == "1"
