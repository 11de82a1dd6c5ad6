"""Requests that Triton counts while the sidecar is dead."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.triton

UNATTRIBUTED = "triton_unattributed_requests_total"


def counted(page):
    return page.value("triton_requests_total", model="double", outcome="success")


@pytest.fixture
def config(playground, settings, tmp_path):
    made = settings(playground)
    for collector in made["collectors"]:
        if collector["kind"] == "statistics":
            collector["state_file"] = str(tmp_path / "statistics.json")
    return made


def count_ten_and_die(config, start_sidecar, traffic):
    config["probes"] = []
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: counted(page) == 0)
    traffic.double(10)
    sidecar.wait(lambda page: counted(page) == 10)
    sidecar.settle()
    sidecar.process.kill()


def test_requests_during_a_kill_and_a_restart_are_unattributed(
    config, start_sidecar, traffic
):
    count_ten_and_die(config, start_sidecar, traffic)
    traffic.double(40)
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: counted(page) is not None)
    traffic.double(5)
    sidecar.wait(lambda page: counted(page) == 5)
    assert sidecar.page().value(UNATTRIBUTED, model="double") == 40
