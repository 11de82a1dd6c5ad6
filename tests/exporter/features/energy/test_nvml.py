"""NVML through the real nvidia-ml-py and ctypes, on a scripted library below them."""

from __future__ import annotations

import time

import pytest
from clocks import Clock
from commands import python
from fake_nvml import GPU_IS_LOST, NOT_AVAILABLE, board
from structlog.testing import capture_logs

from exporter import catalogue
from exporter.access.work_board import WorkBoard
from exporter.features.energy.sources.nvml import NvmlSettings, library_exists
from exporter.features.energy.sources.power_source import Surroundings


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def found(nvml, clock):
    """Open the source on these boards: (script, source)."""
    sources = []

    def open_source(scripted, **more):
        script = nvml(scripted)
        source = NvmlSettings(**more).find(
            Surroundings(clock, lambda: 1e9 + clock.now, None, WorkBoard())
        )
        assert source is not None
        sources.append(source)
        return script, source

    yield open_source
    for source in sources:
        source.close()


def values(reading, spec):
    """Values by the labels beyond those of every board's."""
    return {s.labels[4:]: s.value for s in reading.samples if s.spec is spec}


def test_boards_of_other_tritons_can_be_left_out(found):
    _, everything = found({number: board(number) for number in range(3)})
    keys = [reading.device.key for reading in everything.read()]
    with capture_logs() as log:
        _, source = found({n: board(n) for n in range(3)}, boards=[keys[0], "2", "7"])
    indices = [reading.device.index for reading in source.read()]
    assert indices == ["0", "2"]
    (warning,) = [entry for entry in log if entry["log_level"] == "warning"]
    assert (warning["event"], warning["boards"]) == ("gpu_unknown", ["7"])


def test_every_reading_of_a_healthy_board_arrives_in_base_units(found):
    ecc = {"ecc.0": 12, "ecc.1": 1}
    _, source = found({0: board(watts=None, energy=7_654_321, **ecc)})
    (reading,) = source.read()
    assert reading.device.key.startswith("GPU-00000000")
    assert reading.device.name == "NVIDIA H100 80GB HBM3"
    assert reading.device.max_watts == 700
    assert reading.counter_microjoules == 7_654_321_000
    assert reading.power_watts == 300
    assert reading.average_watts == 300
    assert reading.utilization_ratio == 0.4
    assert not reading.faults
    assert values(reading, catalogue.GPU_MEMORY_TOTAL) == {(): 80 * 2**30}
    assert values(reading, catalogue.GPU_MEMORY_USED) == {(): 10 * 2**30}
    assert values(reading, catalogue.GPU_TEMPERATURE) == {(): 55}
    assert values(reading, catalogue.GPU_CLOCK) == {
        ("sm",): 1.755e9,
        ("memory",): 2.619e9,
    }
    assert values(reading, catalogue.GPU_POWER_LIMIT) == {(): 700}
    assert values(reading, catalogue.GPU_ECC) == {
        ("corrected",): 12,
        ("uncorrected",): 1,
    }
    assert values(reading, catalogue.GPU_INFO) == {("550.54.15", "off", "counter"): 1}
    assert "550.54.15: 1 x NVIDIA H100" in source.description


def test_what_a_board_does_not_have_is_absent_and_not_zero(found):
    bare = {"uuid": "GPU-bare", "name": "Tesla T4", "power": 33_000}
    _, source = found({0: bare})
    (reading,) = source.read()
    assert reading.counter_microjoules is None
    assert reading.power_watts == 33
    assert reading.average_watts is None
    assert reading.utilization_ratio is None
    shown = {sample.spec.name for sample in reading.samples}
    assert shown == {"triton_gpu_info"}
    assert values(reading, catalogue.GPU_INFO) == {
        ("550.54.15", "unknown", "integrated_instant"): 1
    }


def test_without_a_counter_the_average_power_is_what_is_integrated(found):
    _, source = found({0: board(watts=None, energy=NOT_AVAILABLE)})
    (reading,) = source.read()
    assert reading.counter_microjoules is None
    assert reading.average_watts == 300
    assert ("550.54.15", "off", "integrated_average") in values(
        reading, catalogue.GPU_INFO
    )


def test_a_lost_board_has_its_fault_and_costs_the_others_nothing(found):
    script, source = found({0: board(0), 1: board(1)})
    script.change(0, lost=GPU_IS_LOST)
    lost, healthy = source.read()
    assert lost.faults == {"lost"}
    assert lost.counter_microjoules is None
    assert lost.power_watts is None
    assert not lost.samples
    assert not healthy.faults
    assert healthy.counter_microjoules is not None
    script.change(0, lost=None)
    assert not source.read()[0].faults


def test_what_fails_for_once_is_asked_again_and_costs_nothing_else(found):
    script, source = found({0: board(temperature="error 999")})
    (reading,) = source.read()
    assert not reading.faults
    assert not values(reading, catalogue.GPU_TEMPERATURE)
    script.change(0, temperature=61)
    (reading,) = source.read()
    assert values(reading, catalogue.GPU_TEMPERATURE) == {(): 61}


def test_a_board_that_tells_neither_energy_nor_power_is_unreadable(found):
    fault = "error 999"
    fields = {"field.185": fault, "field.186": fault, "power": fault}
    script, source = found(
        {0: board(0, watts=None, energy=fault, **fields), 1: board(1)}
    )
    first, second = source.read()
    assert first.faults == {"unreadable"}
    assert not second.faults
    script.change(0, energy=5)
    assert not source.read()[0].faults


def test_a_driver_that_is_loaded_anew_is_opened_anew(found):
    script, source = found({0: board()})
    source.read()
    script.unload_driver()
    for _ in range(2):
        (reading,) = source.read()
        assert reading.faults == {"driver_gone"}
    script.load_driver("560.0")
    (reading,) = source.read()
    assert not reading.faults
    assert ("560.0", "off", "counter") in values(reading, catalogue.GPU_INFO)


def test_a_driver_reloaded_between_two_calls_costs_one_of_them(found):
    script, source = found({0: board()})
    script.load_driver()
    assert source.read()[0].faults == {"driver_gone"}
    assert not source.read()[0].faults


def test_a_board_that_does_not_come_back_with_the_driver_stays_flagged(found):
    script, source = found({0: board(0), 1: board(1)})
    script.unload_driver()
    source.read()
    script.change(1, hidden=GPU_IS_LOST)
    script.load_driver()
    first, second = source.read()
    assert not first.faults
    assert second.faults == {"lost"}
    script.change(1, hidden=None)
    assert any(not source.read()[1].faults for _ in range(60))


def test_throttling_is_seconds_by_reason_since_the_first_reading(found, clock):
    script, source = found(
        {0: board(violation__0=None, **{"violation.0": 5_000_000_000})}
    )
    source.read()
    script.change(0, violation__0=7_500_000_000, reasons=0x20)
    clock.now += 1
    source.read()
    clock.now += 2
    (reading,) = source.read()
    throttled = values(reading, catalogue.GPU_THROTTLE)
    assert throttled["power",] == 2.5
    assert throttled["thermal",] == 0
    assert throttled["sw_thermal",] == 3
    assert throttled["hw_slowdown",] == 0


def test_time_a_board_was_lost_is_not_counted_as_throttled(found, clock):
    script, source = found({0: board(reasons=0x40)})
    source.read()
    script.change(0, lost=GPU_IS_LOST)
    clock.now += 30
    source.read()
    script.change(0, lost=None)
    clock.now += 30
    source.read()
    clock.now += 1
    (reading,) = source.read()
    assert values(reading, catalogue.GPU_THROTTLE)["hw_thermal",] == 1


def test_violation_counters_that_start_over_are_not_subtracted(found, clock):
    script, source = found({0: board(**{"violation.1": 9_000_000_000})})
    source.read()
    script.change(0, violation__1=500_000_000)
    clock.now += 1
    (reading,) = source.read()
    assert values(reading, catalogue.GPU_THROTTLE)["thermal",] == 0.5


def test_the_latest_xid_errors_are_dated_by_number(found, clock):
    script, source = found({0: board(0), 1: board(1)})
    script.xid(1, 79)
    script.xid(0, 31)
    first, second = source.read()
    began = 1e9 + clock.now
    assert values(first, catalogue.GPU_XID_TIMESTAMP) == {("31",): began}
    assert values(second, catalogue.GPU_XID_TIMESTAMP) == {("79",): began}
    clock.now += 60
    script.xid(1, 79)
    first, second = source.read()
    assert values(first, catalogue.GPU_XID_TIMESTAMP) == {("31",): began}
    assert values(second, catalogue.GPU_XID_TIMESTAMP) == {("79",): began + 60}


def test_xid_dates_outlive_the_driver_that_told_them(found, clock):
    script, source = found({0: board()})
    script.xid(0, 79)
    source.read()
    script.unload_driver()
    assert values(source.read()[0], catalogue.GPU_XID_TIMESTAMP) == {
        ("79",): 1e9 + clock.now
    }
    script.load_driver()
    assert values(source.read()[0], catalogue.GPU_XID_TIMESTAMP) == {
        ("79",): 1e9 + clock.now
    }


def test_under_mig_energy_is_the_boards_and_instances_are_only_named(found):
    _, source = found(
        {
            0: board(
                mig=1,
                utilization=NOT_AVAILABLE,
                **{"instance.0": "MIG-aaaa", "instance.2": "MIG-bbbb"},
            )
        }
    )
    (reading,) = source.read()
    assert reading.device.instances == ("MIG-aaaa", "MIG-bbbb")
    assert reading.counter_microjoules is not None
    assert reading.utilization_ratio is None
    assert ("550.54.15", "on", "counter") in values(reading, catalogue.GPU_INFO)


def test_no_board_and_no_driver_are_no_source(nvml, clock):
    surroundings = Surroundings(clock, time.time, None, WorkBoard())
    script = nvml({})
    assert NvmlSettings().find(surroundings) is None
    script.unload_driver()
    assert NvmlSettings().find(surroundings) is None


def test_nothing_is_imported_where_there_is_no_library():
    """6 MB that a sidecar beside a CPU server does not have to carry."""
    code = (
        "import sys, time\n"
        "from exporter.features.energy.energy_settings import PowerSettings\n"
        "from exporter.features.energy.sources import nvml\n"
        "from exporter.features.energy.sources.power_source import Surroundings\n"
        "from exporter.access.work_board import WorkBoard\n"
        "nvml._LIBRARY = 'libnvidia-none.so.1'\n"
        "around = Surroundings(time.monotonic, time.time, None, WorkBoard())\n"
        "found = [s.find(around) for s in PowerSettings().sources if s.kind == 'nvml']\n"
        "print(found, [m for m in sys.modules if m == 'pynvml'"
        " or m.startswith('exporter.features.energy.') and m.split('.')[3] not in"
        " ('energy_settings', 'sources')])\n"
    )
    assert python(code, env={"PATH": "/usr/bin"}) == "[None] []\n"


def test_the_library_is_found_where_the_loader_finds_it(nvml, monkeypatch):
    nvml({0: board()})
    assert library_exists()
    monkeypatch.setattr(
        "exporter.features.energy.sources.nvml._LIBRARY", "libnvidia-none.so.1"
    )
    assert not library_exists()
