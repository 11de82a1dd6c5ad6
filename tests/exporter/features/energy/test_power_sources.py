"""Whatever power source there is, it is in the union and keeps the rules of the package."""

from __future__ import annotations

from typing import get_args

import pytest
from fake_nvml import board

from exporter import catalogue
from exporter.access.work_board import WorkBoard, WorkSnapshot
from exporter.features.energy.energy_settings import PowerSettings
from exporter.features.energy.sources import AnySource
from exporter.features.energy.sources.power_source import Surroundings

SOURCES = get_args(get_args(AnySource)[0])
NEEDED = {"model": {"idle_watts": 20.0, "full_watts": 60.0}}


def made(settings, **more):
    kind = settings.model_fields["kind"].default
    return settings(**NEEDED.get(kind, {}), **more)


@pytest.fixture
def surroundings():
    times = iter(range(1000))
    work = WorkBoard()
    work.publish(WorkSnapshot(1.0))
    return Surroundings(lambda: float(next(times)), lambda: 0.0, None, work)


@pytest.mark.parametrize("settings", SOURCES, ids=lambda s: s.__name__)
def test_a_source_reads_devices_of_its_own_kind_and_boundary(
    settings, surroundings, nvml, tmp_path
):
    nvml({0: board()})
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0")
    (zone / "energy_uj").write_text("1")
    chosen = made(settings)
    if chosen.kind == "rapl":
        chosen = settings(root=tmp_path)
    source = chosen.find(surroundings)
    if chosen.kind == "triton":
        assert source is None, "there is no page"
        return
    assert source.kind == chosen.kind
    assert source.description
    readings = source.read()
    assert readings
    for reading in readings:
        assert reading.device.source == chosen.kind
        assert reading.device.boundary == chosen.boundary
        for sample in reading.samples:
            assert sample.spec in catalogue.CATALOGUE
            assert len(sample.labels) == len(sample.spec.labels)
    source.close()


def test_what_is_looked_for_unasked_measures_and_does_not_model():
    kinds = [source.kind for source in PowerSettings().sources]
    assert kinds == ["nvml", "triton", "rapl"]
