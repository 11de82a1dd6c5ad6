"""Power modelled from use: exact about what was assumed, and labelled so."""

from __future__ import annotations

import pytest

from exporter.access.work_board import ModelWork, WorkBoard, WorkSnapshot
from exporter.features.energy.energy_meter import MICRO
from exporter.features.energy.sources import power_model
from exporter.features.energy.sources.power_model import ModelSettings
from exporter.features.energy.sources.power_source import Surroundings


@pytest.fixture
def stat(tmp_path, monkeypatch):
    file = tmp_path / "stat"
    monkeypatch.setattr(power_model, "_STAT", file)

    def write(busy, idle):
        # user nice system idle iowait irq softirq steal guest guest_nice
        file.write_text(f"cpu  {busy} 0 0 {idle - 10} 10 0 0 0 99 99\ncpu0 1 2 3\n")

    write(1000, 9000)
    return write


def surroundings(now, work=None):
    return Surroundings(lambda: now[0], lambda: 0, None, work or WorkBoard())


def test_power_is_a_line_between_idle_and_full_use_of_the_cpu(stat):
    now = [0.0]
    source = ModelSettings(idle_watts=20, full_watts=100).find(surroundings(now))
    assert source.read()[0].power_watts == 20
    now[0] = 2.0
    stat(1000 + 25, 9000 + 75)
    (reading,) = source.read()
    assert reading.power_watts == 40
    assert reading.counter_microjoules == 80 * MICRO
    assert reading.device.source == "model"
    assert reading.device.idle_watts == 20
    assert reading.device.max_watts == 100


def test_use_may_be_the_models_busy_seconds_where_the_server_is_elsewhere():
    now, work = [0.0], WorkBoard()
    settings = ModelSettings(idle_watts=50, full_watts=250, use="busy", parallel=2)
    source = settings.find(surroundings(now, work))
    assert source.read() == ()
    for at, busy in ((10.0, 100.0), (14.0, 102.0)):
        step = ModelWork(busy, busy, 5)
        ensemble = ModelWork(8 * busy, 8 * busy, 5, is_ensemble=True)
        models = {("step", "1"): step, ("ensemble", "1"): ensemble}
        work.publish(WorkSnapshot(at, models))
        (reading,) = source.read()
    assert reading.at == 14.0
    assert reading.power_watts == 100
    assert reading.counter_microjoules == 400 * MICRO
    assert source.read() == (reading,)


def test_without_a_kernel_that_tells_there_is_no_source(tmp_path, monkeypatch):
    monkeypatch.setattr(power_model, "_STAT", tmp_path / "none")
    assert ModelSettings(idle_watts=1, full_watts=2).find(surroundings([0.0])) is None
