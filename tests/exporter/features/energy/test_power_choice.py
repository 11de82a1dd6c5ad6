"""Which of the configured sources measures a boundary, and that each can be accounted for."""

from __future__ import annotations

import contextlib

import pytest
from accesses import access_to
from page_server import PageServer

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.energy.energy_collector import EnergyCollector
from exporter.features.energy.energy_settings import EnergySettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec

KEY = ("m", "1")
MODELLED_GPU = {
    "kind": "model",
    "measures": "gpu",
    "idle_watts": 60,
    "full_watts": 300,
    "use": "busy",
}
MODELLED_HOST = {"kind": "model", "idle_watts": 90, "full_watts": 320}
GAUGES = (
    b'nv_gpu_power_usage{gpu_uuid="G0"} 120\nnv_energy_consumption{gpu_uuid="G0"} 9\n'
)


class Scene:
    """An energy collector, second by second, beside a server whose one model is busy."""

    def __init__(self, *sources, metrics=None):
        self.now = 0.0
        grpc = GrpcClient("127.0.0.1:1")
        self.access = access_to(grpc, clock=lambda: self.now, metrics=metrics)
        # A window may be one reading long, and the average two windows.
        times = {"interval_seconds": 5, "window_seconds": 5, "rate_window_seconds": 10}
        settings = EnergySettings.model_validate({"sources": sources, **times})
        self.collector = EnergyCollector(settings, self.access)
        self.samples = []

    def run(self, seconds):
        for _ in range(seconds):
            self.now += 1
            work = ModelWork(self.now / 2, self.now / 2, int(self.now))
            self.access.work.publish(WorkSnapshot(self.now, {KEY: work}))
            self.samples = self.collector.collect()

    def labels(self, spec):
        return {sample.labels for sample in self.samples if sample.spec is spec}

    def sources(self):
        return {labels[:2] for labels in self.labels(catalogue.SENSOR_UP)}

    def close(self):
        self.collector.close()
        self.access.grpc.close()


@pytest.fixture
def scene():
    with contextlib.ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(
            contextlib.closing(Scene(*args, **more))
        )


@pytest.fixture
def page():
    with contextlib.closing(PageServer()) as server:
        yield server


@pytest.mark.parametrize("gpus", [None, (0,), (0, 1)])
def test_modelled_power_of_the_boards_is_divided_among_the_models(scene, page, gpus):
    # A model that was loaded later: Triton's page names its board.
    page.body = (
        b'nv_inference_compute_infer_duration_us{gpu_uuid="G0",model="m",version="1"} 5'
    )
    scene = scene(MODELLED_GPU, metrics=page.client)
    spec = ModelSpec(*KEY, (), (), gpus=gpus)
    scene.access.board.publish(Inventory(up=True, ready=True, models={KEY: spec}))
    scene.run(30)
    assert scene.sources() == {("gpu", "model")}
    assert scene.labels(catalogue.MODEL_ENERGY) == {(*KEY, "gpu", "model", "busy_time")}


@pytest.mark.parametrize("readable", [True, False])
def test_a_sensor_that_cannot_be_read_gives_way_to_the_next(scene, tmp_path, readable):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0")
    if readable:
        (zone / "energy_uj").write_text("1")
    rapl = {"kind": "rapl", "root": str(tmp_path)}
    both, alone = scene(rapl, MODELLED_HOST), scene(rapl)
    for found in (both, alone):
        found.run(2)
    assert both.sources() == {("host", "rapl" if readable else "model")}
    # A sensor without an alternative is shown with its fault.
    assert alone.sources() == {("host", "rapl")}
    faults = {labels[-1] for labels in alone.labels(catalogue.SENSOR_FAULT)}
    assert ("unreadable" in faults) == (not readable)


@pytest.mark.parametrize("kind", ["triton", "model"])
def test_modelled_power_does_not_replace_a_page_of_a_server_that_starts(
    scene, page, kind
):
    scene = scene({"kind": "triton"}, MODELLED_GPU, metrics=page.client)
    page.status = 503
    scene.run(2)
    assert not scene.sources()
    page.status = 200
    page.body = GAUGES if kind == "triton" else b""
    scene.run(60)
    assert scene.sources() == {("gpu", kind)}


def test_modelled_power_replaces_the_page_of_a_server_that_is_up_and_has_none(
    scene, page
):
    scene = scene({"kind": "triton"}, MODELLED_GPU, metrics=page.client)
    page.status = 503
    scene.access.board.publish(Inventory(up=True, ready=True))
    scene.run(2)
    assert scene.sources() == {("gpu", "model")}
