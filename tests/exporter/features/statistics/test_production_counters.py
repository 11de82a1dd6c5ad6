"""Production as the statistics collector counts it, on a server whose counts are set."""

from __future__ import annotations

import contextlib

import pytest
from accesses import access_to
from fake_triton import UNAVAILABLE, Body, FakeModel, FakeTriton

from exporter import errors
from exporter.access.inventory import Inventory
from exporter.access.own_traffic import OwnTraffic
from exporter.features.statistics.statistics_settings import StatisticsSettings
from exporter.settings import ModelFilter
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import ModelSpec


class Looked:
    """A statistics collector on a fake server, and production as it says at a look."""

    def __init__(self, fake, **given):
        self.own = OwnTraffic(run_id="test")
        self.clients = GrpcClient(fake.grpc), HttpClient(fake.metrics)
        self.now = 0.0
        access = access_to(
            self.clients[0],
            metrics=self.clients[1],
            own=self.own,
            clock=lambda: self.now,
            **given,
        )
        self.collector = StatisticsSettings().build(access)
        self.work, self.board = access.work, access.board

    def __call__(self, model="m", outcome="success"):
        found = {(s.spec.name, s.labels): s for s in self.collector.collect()}
        sample = found.get(("triton_requests_total", (model, "1", outcome)))
        return None if sample is None else sample.value

    def in_vain(self, fake):
        """Read while the server does not answer."""
        fake.on("statistics").reply(UNAVAILABLE)
        with pytest.raises(errors.UnavailableError):
            self()
        fake.behave()

    def probe(self, fake, model="m"):
        with self.own.request([((model, "1"), 1)]):
            fake.served(model, 1)


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m")]) as server:
        yield server


@pytest.fixture
def looked(fake, request):
    scene = Looked(fake, **getattr(request, "param", {}))
    yield scene
    for client in scene.clients:
        client.close()


def test_what_the_server_had_counted_before_us_is_not_ours_to_count(looked, fake):
    fake.served("m", 100)
    looked.probe(fake)
    assert looked() == 0
    fake.served("m", 5)
    looked.probe(fake)
    assert looked() == 5


def test_a_probe_under_way_at_the_first_look_costs_production_nothing(looked, fake):
    with looked.own.request([(("m", "1"), 1)]):
        fake.served("m", 1)
        assert looked() is None
    assert looked() == 0
    fake.served("m", 5)
    assert [looked(), looked()] == [5, 5]


def test_production_is_counted_though_something_of_ours_is_always_under_way(
    looked, fake
):
    with looked.own.request([(("m", "1"), 1)]):
        assert [looked() for _ in range(6)] == [None] * 5 + [0]
        fake.served("m", 5)
        # One may be that of ours.
        assert looked() == 4


def test_busy_times_are_published_once_all_models_are_counted(looked, fake):
    with looked.own.request([(("m", "1"), 1)]):
        for _ in range(5):
            looked()
            looked.now += 5
            assert looked.work.current is None
        looked()
    assert (looked.work.current.at, looked.work.current.since) == (25.0, 25.0)
    looked.now += 5
    looked()
    assert (looked.work.current.at, looked.work.current.since) == (30.0, 25.0)


def test_a_model_that_left_before_it_was_counted_delays_no_busy_times(looked, fake):
    fake.add(FakeModel("other"))
    with looked.own.request([(("other", "1"), 1)]):
        looked()
        before = looked.work.current
        fake.unload("other")
        looked()
    assert before is None
    assert list(looked.work.current.models) == [("m", "1")]


def test_a_model_that_comes_later_counts_from_its_first_request(looked, fake):
    assert looked() == 0
    fake.add(FakeModel("late"))
    fake.served("late", 4)
    looked.probe(fake, "late")
    assert looked("late") == 4


@pytest.mark.parametrize(
    "looked", [{"models": ModelFilter(include=("m",))}], indirect=True
)
def test_an_ensemble_whose_steps_are_not_watched_stands_for_their_work(looked):
    # Otherwise nothing would be busy in what energy is divided by.
    ensemble = ModelSpec("m", "1", (), (), steps=(("step", ""),))
    models = {ensemble.key: ensemble}
    looked.board.publish(Inventory(up=True, ready=True, models=models))
    looked()
    assert not looked.work.current.models[ensemble.key].is_ensemble


def test_an_ensemble_is_known_as_one_while_it_is_unloaded_too(looked, fake):
    ensemble = ModelSpec("m", "1", (), (), steps=(("step", ""),))
    for models in ({ensemble.key: ensemble}, {}):
        looked.board.publish(Inventory(up=True, ready=True, models=models))
        looked()
        assert looked.work.current.models[ensemble.key].is_ensemble


def test_a_reload_keeps_what_was_counted(looked, fake):
    looked()
    fake.served("m", 7)
    assert looked() == 7
    fake.unload("m")
    assert looked() is None
    # Otherwise all seven would be the work of the time in which it returns.
    assert looked.work.current.models["m", "1"].inferences == 7
    fake.load("m")
    fake.served("m", 2)
    assert looked() == 9
    assert looked.work.current.models["m", "1"].inferences == 9


def test_a_model_gone_for_long_begins_anew_and_so_do_our_own_requests(
    looked, fake, monkeypatch
):
    monkeypatch.setattr(
        "exporter.features.statistics.statistics_collector._KEEP_MISSING_RUNS", 2
    )
    looked()
    for _ in range(50):
        looked.probe(fake)
    fake.served("m", 7)
    assert looked() == 7
    fake.unload("m")
    for _ in range(4):
        assert looked() is None
    fake.load("m")
    fake.served("m", 3)
    looked.probe(fake)
    assert looked() == 3


def test_failures_are_counted_apart(looked, fake):
    looked()
    fake.failed("m", 3)
    assert looked(outcome="failure") == 3
    assert looked() == 0


def test_outcomes_are_doubtful_until_ten_minutes_after_a_failure_booked_as_success(
    looked, fake
):
    def doubtful():
        found = {s.spec.name: s for s in looked.collector.collect()}
        return found["triton_request_outcomes_doubtful"].value

    assert not doubtful()
    with (
        contextlib.suppress(errors.ModelError),
        looked.own.request([(("m", "1"), 1)]),
    ):
        fake.served("m", 1)
        raise errors.ModelError("INTERNAL")
    # It is looked for when Triton has certainly booked it: one look later.
    assert [doubtful(), doubtful()] == [False, True]
    looked.now = 599.0
    assert doubtful()
    looked.now = 601.0
    assert not doubtful()


def test_a_metrics_page_of_garbage_costs_no_count(looked, fake):
    fake.on("metrics").reply(Body(b"nv_inference_count{"))
    assert looked() == 0
    fake.served("m", 2)
    assert looked() == 2


def test_what_ours_a_server_that_is_gone_had_counted_is_not_taken_from_its_successor(
    looked, fake
):
    fake.served("m", 100)
    looked()
    for _ in range(3):
        looked.probe(fake)
    looked.in_vain(fake)
    fake.reset_counters()
    fake.served("m", 5)
    looked.probe(fake)
    assert looked() == 5
    fake.served("m", 2)
    assert looked() == 7


def test_a_server_that_was_only_out_of_reach_goes_on_where_it_was(looked, fake):
    looked()
    for _ in range(3):
        looked.probe(fake)
    looked.in_vain(fake)
    looked.probe(fake)
    fake.served("m", 5)
    assert looked() == 5
