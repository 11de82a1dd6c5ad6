"""Energy in a real sidecar beside a real Triton: scripted boards below NVML, a model for
the host, and a balance that holds at every scrape."""

from __future__ import annotations

import fake_nvml
import pytest
from fake_nvml import GPU_IS_LOST, board

pytestmark = pytest.mark.triton

INTERVAL_SECONDS = 0.5


@pytest.fixture
def boards(nvml_library, tmp_path, monkeypatch):
    script = fake_nvml.NvmlScript(tmp_path / "nvml", {0: board(0), 1: board(1)})
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.setenv(fake_nvml.SCRIPT_VARIABLE, str(script.path))
    return script


@pytest.fixture
def sidecar(playground, settings, start_sidecar, boards):
    chosen = settings(playground)
    chosen["power"] = {
        "interval_seconds": INTERVAL_SECONDS,
        "window_seconds": 1,
        "rate_window_seconds": 30,
        "sources": [
            {"kind": "nvml", "idle_watts": 60},
            {"kind": "model", "idle_watts": 20, "full_watts": 80},
        ],
    }
    chosen["cost"] = {
        "gpu_hour_price": 2.0,
        "machine_hour_price": 1.0,
        "electricity_price_per_kwh": 0.3,
        "grid_grams_per_kwh": 400,
    }
    return start_sidecar(chosen)


def assert_balanced(page):
    """models + idle + unattributed = what was measured, by boundary."""
    for boundary, measured in (
        ("gpu", "triton_gpu_energy_joules_total"),
        ("host", "triton_host_energy_joules_total"),
    ):
        parts = sum(
            page.sum(name, boundary=boundary)
            for name in (
                "triton_model_energy_joules_total",
                "triton_idle_energy_joules_total",
                "triton_unattributed_energy_joules_total",
            )
        )
        assert parts == pytest.approx(page.sum(measured), abs=1e-4, rel=1e-9)


def test_joules_cost_and_efficiency_of_production_come_with_their_source(
    sidecar, traffic
):
    def priced(page):
        traffic.double(20)
        traffic.sleepy(50)
        assert_balanced(page)
        return page.all("triton_inference_energy_joules", model="sleepy") and page.all(
            "triton_model_cost_per_thousand_inferences", model="sleepy"
        )

    page = sidecar.wait(priced, 40)
    (labels, _), *_ = page.all("triton_inference_energy_joules", model="sleepy")
    assert (labels["boundary"], labels["source"]) == ("host", "model")
    active = page.value(
        "triton_inference_energy_joules", model="sleepy", basis="active"
    )
    full = page.value("triton_inference_energy_joules", model="sleepy", basis="full")
    assert 0 < active < full
    efficiency = page.value(
        "triton_model_inferences_per_second_per_watt", model="sleepy", basis="full"
    )
    assert efficiency == pytest.approx(1 / full, rel=1e-6)
    assert page.value("triton_model_carbon_grams_total", model="sleepy") > 0
    assert (
        page.sum("triton_unattributed_energy_joules_total", reason="own_requests") > 0
    )
    assert page.value("triton_idle_power_watts", boundary="host") == 20
    # No model has an instance on a board here, as Triton's own page says.
    assert not page.all("triton_model_energy_joules_total", boundary="gpu")
    assert page.sum("triton_gpu_energy_joules_total") > 0
    assert page.value("triton_gpu_power_watts", gpu="0") == 300
    assert len(page.all("triton_gpu_clock_hertz")) == 4
    assert page.value("triton_power_sensor_up", boundary="host") == 1
    assert "2 x NVIDIA H100 80GB HBM3" in sidecar.log
    assert "modelled from cpu time, 20 W to 80 W" in sidecar.log


def test_a_lost_board_is_flagged_within_two_intervals_and_the_other_goes_on(
    sidecar, boards, limits
):
    page = sidecar.wait(lambda p: p.sum("triton_gpu_energy_joules_total") > 0, 20)
    lost, healthy = sorted(page.label("triton_gpu_power_watts", "uuid"))
    boards.change(0, lost=GPU_IS_LOST)
    page = sidecar.wait(
        lambda p: p.all("triton_power_sensor_fault", device=lost, fault="lost"),
        # Two intervals, and what a busy machine may add.
        limits.recovery,
    )
    assert page.value("triton_power_sensor_up", device=lost) == 0
    for name in ("triton_gpu_power_watts", "triton_gpu_temperature_celsius"):
        assert not page.all(name, uuid=lost)
        assert page.all(name, uuid=healthy)
    assert page.value("triton_power_sensor_up", device=healthy) == 1
    assert page.value("tritonwatch_collector_success", collector="energy") == 1
    stands = page.value("triton_gpu_energy_joules_total", uuid=lost)
    runs = page.value("triton_gpu_energy_joules_total", uuid=healthy)
    page = sidecar.wait(
        lambda p: p.value("triton_gpu_energy_joules_total", uuid=healthy) > runs + 600,
        20,
    )
    # What was read before it went away may still be divided; nothing is after that.
    assert page.value("triton_gpu_energy_joules_total", uuid=lost) < stands + 600
    assert_balanced(page)
    boards.change(0, lost=None)
    page = sidecar.wait(lambda p: p.value("triton_power_sensor_up", device=lost) == 1)
    assert not page.all("triton_power_sensor_fault")
    assert_balanced(page)
