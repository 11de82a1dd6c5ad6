"""Triton's own GPU gauges: 0 W is unknown, and a latched gauge no measurement."""

from __future__ import annotations

import pytest
from page_server import PageServer

from exporter.access.work_board import WorkBoard
from exporter.errors import TritonError
from exporter.features.energy.energy_meter import Meter
from exporter.features.energy.sources.power_source import Surroundings
from exporter.features.energy.sources.triton_gauges import TritonGaugesSettings

PAGE = """\
# HELP nv_gpu_power_usage GPU power usage in watts
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{{gpu_uuid="GPU-1"}} {watts}
nv_gpu_power_limit{{gpu_uuid="GPU-1"}} 300
nv_energy_consumption{{gpu_uuid="GPU-1"}} {joules}
nv_gpu_utilization{{gpu_uuid="GPU-1"}} 0.5
nv_gpu_memory_total_bytes{{gpu_uuid="GPU-1"}} 2e10
nv_gpu_memory_used_bytes{{gpu_uuid="GPU-1"}} 0
nv_inference_compute_infer_duration_us{{gpu_uuid="GPU-1",model="m",version="1"}} {on_gpu}
nv_inference_compute_infer_duration_us{{model="m",version="1"}} {on_cpu}
nv_inference_compute_infer_duration_us{{model="n",version="1"}} 5
nv_inference_count{{model="m",version="1"}} 7
"""


class GpuPage(PageServer):
    """That of a Triton with a GPU."""

    def show(self, watts=120.0, joules=5000.0, on_gpu=300, on_cpu=100):
        text = PAGE.format(watts=watts, joules=joules, on_gpu=on_gpu, on_cpu=on_cpu)
        self.body = text.encode()


@pytest.fixture
def page():
    page = GpuPage()
    page.show()
    yield page
    page.close()


@pytest.fixture
def surroundings(page):
    times = iter(range(10_000))
    return Surroundings(lambda: float(next(times)), lambda: 0, page.client, WorkBoard())


def test_boards_are_read_as_triton_shows_them(page, surroundings):
    (reading,) = TritonGaugesSettings().find(surroundings).read()
    assert reading.device.key == "GPU-1"
    assert reading.device.max_watts == 300
    assert reading.counter_microjoules == 5_000_000_000
    assert reading.power_watts == 120
    shown = {sample.spec.name: sample.value for sample in reading.samples}
    # 0 bytes in use is what a failed reading leaves behind as well.
    assert shown == {
        "triton_gpu_power_limit_watts": 300,
        "triton_gpu_utilization_ratio": 0.5,
        "triton_gpu_memory_total_bytes": 2e10,
    }


def test_zero_watts_are_unknown_and_no_source(page, surroundings):
    page.show(watts=0)
    assert TritonGaugesSettings().find(surroundings) is None


def test_a_gauge_latched_at_zero_is_flagged_and_counts_nothing(page, surroundings):
    source, meter = TritonGaugesSettings().find(surroundings), Meter()
    for number in range(3):
        page.show(joules=5000 + 120 * number)
        meter.add(source.read()[0])
    page.show(watts=0, joules=0)
    for _ in range(2):
        meter.add(source.read()[0])
        assert meter.faults == {"no_power"}
        assert meter.power_watts is None
    taken, known = meter.settle(meter.read_until)
    assert taken == 240_000_000
    assert not known


@pytest.mark.parametrize("seconds", [2, 4, 10])
def test_a_gauge_is_frozen_by_the_interval_that_triton_was_given(
    page, surroundings, seconds
):
    """As by --metrics-interval-ms; one update of the default may be late."""
    source, meter = TritonGaugesSettings().find(surroundings), Meter()
    taken = []
    for number in range(100):
        late = 2 if seconds == 2 and number % 20 in {10, 11} else 0
        joules = 5000 + 120 * ((number - late) // seconds * seconds)
        page.show(joules=joules)
        meter.add(source.read()[0])
        if number % 10 == 9:
            taken.append(meter.settle(meter.read_until))
    assert all(known for _, known in taken[2:])
    assert sum(joules for joules, _ in taken[2:]) == pytest.approx(120 * 80e6, rel=0.1)
    for _ in range(2 * seconds + 4):
        meter.add(source.read()[0])
    assert meter.faults == {"frozen"}


def test_without_a_page_there_is_no_source_and_a_lost_one_is_an_error(
    page, surroundings
):
    source = TritonGaugesSettings().find(surroundings)
    page.body = b'nv_gpu_power_usage{gpu_uuid="GPU-1" 17'
    with pytest.raises(TritonError):
        source.read()
    page.body = b""
    assert source.read() == []
    assert TritonGaugesSettings().find(surroundings) is None
