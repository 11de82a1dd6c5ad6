"""What the server holds: one writer, any number of readers, versions in order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from accesses import access_to
from fake_triton import NOT_FOUND, FakeModel, FakeTensor, FakeTriton, Hung, Slow
from waiting import wait_until

from exporter.access.inventory import (
    REREAD_SECONDS,
    Inventory,
    InventoryBoard,
    latest_version,
    wholly_read,
)
from exporter.features.discovery.server_collector import (
    SAME_LOAD_SECONDS,
    LoadCounter,
    ServerSettings,
)
from exporter.own_requests.sending import changed_signature
from exporter.settings import ModelFilter
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec


def held(*versions, name="m"):
    return Inventory(
        models={
            (name, version): ModelSpec(name, version, (), ()) for version in versions
        }
    )


@pytest.mark.parametrize(
    ("versions", "latest"),
    [
        (["1"], "1"),
        (["9", "10", "2"], "10"),
        (["1", "abc"], "1"),
        (["b", "a"], "b"),
        (["007", "6"], "007"),
        ([], None),
    ],
)
def test_the_latest_version_is_the_highest_number(versions, latest):
    assert latest_version(held(*versions), "m") == latest


def test_versions_of_other_models_do_not_count():
    assert latest_version(held("3", name="other"), "m") is None


@pytest.mark.parametrize(
    ("unread", "known"),
    [
        ((), {"leaf", "inner", "outer", "caller", "alone"}),
        (("leaf",), {"alone"}),
        (("inner",), {"leaf", "caller", "alone"}),
        (("outer",), {"leaf", "inner", "caller", "alone"}),
        # Not ready, as far as the server says: who names it is not kept waiting.
        (("gone",), {"leaf", "inner", "outer", "caller", "alone"}),
    ],
)
def test_a_model_is_known_once_all_that_its_requests_reach_is_read(unread, known):
    steps = {"inner": ("leaf",), "outer": ("gone", "inner")}
    specs = {
        (name, "1"): ModelSpec(
            name, "1", (), (), steps=tuple((step, "") for step in steps.get(name, ()))
        )
        for name in ("leaf", "inner", "outer", "caller", "alone")
    }
    ready = list(specs)
    for name in unread:
        specs.pop((name, "1"), None)
    found = wholly_read(specs, ready, {"caller": {"leaf": 2}})
    assert {name for name, _ in found} == known


@pytest.mark.parametrize(("version", "known"), [("1", True), ("2", False), ("", False)])
def test_a_version_that_is_not_read_keeps_those_waiting_that_may_use_it(version, known):
    ensemble = ModelSpec("ensemble", "1", (), (), steps=(("step", version),))
    specs = {("step", "1"): ModelSpec("step", "1", (), ()), ensemble.key: ensemble}
    found = wholly_read(specs, [*specs, ("step", "2")], {})
    assert (ensemble.key in found) is known
    assert ("step", "1") in found


# The collector that writes it.


class Looked:
    """A server collector on a fake server, and what each look of it says."""

    def __init__(self, fake, **settings):
        self.now = 0.0
        self.grpc = GrpcClient(fake.grpc)
        self.board = InventoryBoard()
        self.access = access_to(
            self.grpc,
            models=ModelFilter(exclude=("left_out",)),
            board=self.board,
            clock=lambda: self.now,
        )
        chosen = {"timeout_seconds": 0.3, "refresh_seconds": 60} | settings
        self.collector = ServerSettings(**chosen).build(self.access)

    def __call__(self, after_seconds=0.0):
        self.now += after_seconds
        return {(s.spec.name, s.labels): s.value for s in self.collector.collect()}

    @property
    def models(self):
        return [name for name, _ in self.board.current.models]


@pytest.fixture(params=["2.51.0", "2.65.0", "2.70.0"])
def fake(request):
    models = [FakeModel("a"), FakeModel("b"), FakeModel("left_out")]
    with FakeTriton(models, version=request.param) as server:
        yield server


@pytest.fixture
def looked(fake):
    scene = Looked(fake)
    yield scene
    scene.grpc.close()


def test_a_look_finds_the_ready_models_that_are_not_left_out(looked, request):
    fake_version = request.node.callspec.params["fake"]
    said = looked()
    assert looked.models == ["a", "b"]
    assert said["triton_up", ()] == said["triton_ready", ()] == 1
    assert said["triton_model_ready", ("a", "1")] == 1
    assert said["triton_models_unreadable", ()] == 0
    assert not [labels for _, labels in said if "left_out" in labels]
    assert looked.board.current.info.version == fake_version


def test_while_the_server_is_away_its_models_stay_known(looked, fake):
    looked()
    with fake.down():
        assert looked() == {("triton_up", ()): 0, ("triton_ready", ()): 0}
        assert looked.models == ["a", "b"]
        assert not looked.board.current.up
    wait_until(lambda: looked().get(("triton_up", ())) == 1)
    assert looked.models == ["a", "b"]


@pytest.mark.parametrize(("name", "loads"), [("triton", 0), ("another", 1)])
def test_a_refused_connection_is_a_load_only_without_statistics(name, loads):
    """Triton's statistics tell whether it started anew."""
    with FakeTriton([FakeModel("a")], name=name) as server:
        looked = Looked(server)
        looked()
        with server.down():
            assert looked()["triton_up", ()] == 0
        said = wait_until(lambda: (now := looked())["triton_up", ()] == 1 and now)
        looked.grpc.close()
    assert said["triton_model_loads_total", A] == loads


def test_a_model_that_leaves_and_returns_is_a_load(looked, fake):
    assert looked()["triton_model_loads_total", ("a", "1")] == 0
    fake.unload("a")
    said = looked()
    assert looked.models == ["b"]
    assert said["triton_model_ready", ("a", "1")] == 0
    fake.load("a")
    assert looked()["triton_model_loads_total", ("a", "1")] == 1
    assert sorted(looked.models) == ["a", "b"]


def test_metadata_is_read_once_until_it_is_old(looked, fake):
    def asked():
        return sum(r.operation == "model_metadata" for r in fake.requests)

    looked()
    looked(10)
    assert asked() == 2
    looked(60)
    assert asked() == 4


def test_metadata_that_comes_too_late_leaves_the_model_as_it_was_known(looked, fake):
    looked()
    fake.on("model_metadata", model="a").reply(Hung())
    assert looked(61)["triton_models_unreadable", ()] == 1
    assert sorted(looked.models) == ["a", "b"]
    fake.behave()
    assert looked()["triton_models_unreadable", ()] == 0


def test_a_model_never_read_is_not_known(looked, fake):
    fake.on("model_metadata", model="a").reply(Hung())
    said = looked()
    assert said["triton_models_unreadable", ()] == 1
    assert said["triton_model_ready", ("a", "1")] == 1
    assert looked.models == ["b"]


def test_nobody_asks_a_model_that_calls_one_not_read_yet(looked, fake):
    looked.access.own.calls = {"b": {"a": 1}}
    fake.on("model_metadata", model="a").reply(Hung())
    assert looked()["triton_models_unreadable", ()] == 2
    assert looked.models == []
    fake.behave()
    looked()
    assert set(looked.models) == {"a", "b"}


def test_a_model_that_disappears_between_two_calls_is_gone(looked, fake):
    looked()
    fake.on("model_metadata", model="a").reply(NOT_FOUND)
    assert looked(61)["triton_models_unreadable", ()] == 1
    assert looked.models == ["b"]


# Reloads in place.

WIDER = FakeModel("a", inputs=(FakeTensor("INPUT0", shape=(9,)),))
A = ("a", "1")


def metadata_reads(fake):
    return sum(r.operation == "model_metadata" for r in fake.requests)


def test_a_signature_that_changed_is_read_at_once_and_seen_by_all(looked, fake):
    looked()
    used = looked.board.current.models[A]
    fake.add(WIDER)
    fresh = changed_signature(looked.access, used, timeout_seconds=1)
    assert fresh.inputs[0].shape == (-1, 9)
    assert looked.board.current.models[A] == fresh
    # What the next doubt needs is known by now.
    before = metadata_reads(fake)
    assert changed_signature(looked.access, used, timeout_seconds=1) == fresh
    assert metadata_reads(fake) == before
    assert looked(0.1)["triton_model_loads_total", A] == 1
    assert looked.board.current.models[A] == fresh


def test_two_probes_that_fail_together_both_get_the_signature_that_one_of_them_reads(
    looked, fake
):
    looked()
    used = looked.board.current.models[A]
    fake.add(WIDER)
    fake.on("model_metadata", model="a").reply(Slow(0.3))
    with ThreadPoolExecutor(4) as probes:
        found = list(
            probes.map(
                lambda _: changed_signature(looked.access, used, timeout_seconds=10),
                range(4),
            )
        )
    assert [spec.inputs[0].shape for spec in found] == [(-1, 9)] * 4


def test_a_model_that_refuses_for_other_reasons_is_read_once_a_second(looked, fake):
    looked()
    used = looked.board.current.models[A]
    before = metadata_reads(fake)
    for _ in range(50):
        assert changed_signature(looked.access, used, timeout_seconds=1) is None
    assert metadata_reads(fake) == before + 1
    looked.now += REREAD_SECONDS
    assert changed_signature(looked.access, used, timeout_seconds=1) is None
    assert metadata_reads(fake) == before + 2
    assert looked()["triton_model_loads_total", A] == 0


def test_statistics_that_started_over_are_a_load_and_the_signature_is_read(
    looked, fake
):
    looked()
    fake.add(WIDER)
    looked.board.reloaded(A)
    said = looked(1)
    # The changed signature is more evidence of the same load.
    assert said["triton_model_loads_total", A] == 1
    [noticed_at] = looked.board.current.loads([A])
    assert noticed_at is not None
    assert looked.board.current.models[A].inputs[0].shape == (-1, 9)
    # A probe that saw the same change reports it too.
    looked.board.reloaded(A, looked.board.current.models[A])
    assert looked(1)["triton_model_loads_total", A] == 1
    assert looked.board.current.loads([A]) == (noticed_at,)


def test_a_change_reported_while_the_server_is_read_is_not_lost(looked, fake):
    looked()
    fresh = ModelSpec("a", "1", (), (), max_batch_size=77)
    stale = looked.board.current
    looked.board.reloaded(A, fresh)
    looked.board.publish(stale)
    assert looked.board.current.models[A] == fresh


def test_evidence_of_one_load_counts_once_and_of_two_loads_twice():
    loads = LoadCounter()
    loads.add(A, "signature", 0)
    loads.add(A, "statistics", 5)
    loads.add(A, "ready", 9)
    assert loads.counts[A] == 1
    loads.add(A, "statistics", 10)
    assert loads.counts[A] == 2
    loads.add(A, "signature", 10 + SAME_LOAD_SECONDS + 0.1)
    assert loads.counts[A] == 3
