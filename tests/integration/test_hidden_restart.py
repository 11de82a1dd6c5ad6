"""A restarted Triton that has counted more, at the first read, than the one before had."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.triton


def test_a_restart_without_a_counter_that_falls_loses_nothing(
    playground, settings, start_sidecar, traffic
):
    config = settings(playground)
    config["probes"] = []
    for collector in config["collectors"]:
        if collector["kind"] == "statistics":
            # Time for the second server to count more before it is read.
            collector.update(interval_seconds=4, deadline_seconds=3)
    sidecar = start_sidecar(config)

    def counted(page):
        return page.value("triton_requests_total", model="double", outcome="success")

    sidecar.wait(lambda page: counted(page) is not None)
    before = counted(sidecar.page())
    traffic.double(5)
    sidecar.wait(lambda page: counted(page) == before + 5)
    playground.triton.kill()
    playground.triton.start()
    traffic.double(60)
    # It has no series while the server is down.
    sidecar.wait(lambda page: (counted(page) or 0) > before + 5)
    page = sidecar.settle(2)
    assert counted(page) == before + 5 + 60
    assert page.value("triton_statistics_resets_total", model="double") == 1
