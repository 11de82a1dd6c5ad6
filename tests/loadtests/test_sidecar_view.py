"""What a sidecar's pages before and after a run say of it."""

from __future__ import annotations

import pytest
from receiver import Receiver

from loadtests import sidecar_view

BEFORE = """
# TYPE triton_request_phase_duration_seconds histogram
triton_request_phase_duration_seconds_sum{model="m",version="1",phase="queue"} 1.0
triton_request_phase_duration_seconds_count{model="m",version="1",phase="queue"} 100
triton_request_phase_duration_seconds_sum{model="n",version="1",phase="queue"} 0.0
triton_request_phase_duration_seconds_count{model="n",version="1",phase="queue"} 0
triton_model_energy_joules_total{model="m",version="1",method="x"} 10
triton_idle_energy_joules_total 5
triton_up 1
"""
AFTER = """
triton_request_phase_duration_seconds_sum{model="m",version="1",phase="queue"} 3.0
triton_request_phase_duration_seconds_count{model="m",version="1",phase="queue"} 200
triton_request_phase_duration_seconds_sum{model="n",version="1",phase="queue"} 1.0
triton_request_phase_duration_seconds_count{model="n",version="1",phase="queue"} 50
triton_model_energy_joules_total{model="m",version="1",method="x"} 40
triton_idle_energy_joules_total 4
triton_unattributed_energy_joules_total 7
"""


def seen(body: str, status: int = 200) -> sidecar_view.Page | None:
    with Receiver(status, body.encode()) as server:
        return sidecar_view.page(f"{server.url}/metrics")


def test_phases_and_energy_are_what_rose_between_two_pages() -> None:
    found = sidecar_view.between(seen(BEFORE), seen(AFTER))
    assert found["phase_seconds"] == {"queue": pytest.approx(3.0 / 150)}
    # Idle fell, which no counter does; unattributed was not known before.
    assert found["energy_joules"] == {"m": 30.0}


def test_a_sidecar_that_does_not_tell_is_unknown_and_not_zero() -> None:
    assert sidecar_view.page("http://127.0.0.1:9/metrics") is None
    assert seen("no", 503) is None
    assert sidecar_view.between(None, seen(AFTER)) == {}
    assert sidecar_view.between(seen(BEFORE), seen(BEFORE)) == {}
