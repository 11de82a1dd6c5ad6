"""Two sidecars watch one Triton, and one of them knows of the other."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.triton

PRODUCTION = ("triton_requests_total", "triton_inferences_total")
UNATTRIBUTED = "triton_unattributed_requests_total"


def test_what_another_sidecar_asks_is_no_production(
    playground, settings, start_sidecar, traffic
) -> None:
    probe = {"interval_seconds": 0.5}
    other = start_sidecar(settings(playground, probe=probe))
    config = settings(playground, probe=probe)
    address = f"127.0.0.1:{other.port}"
    config["collectors"][1]["watchers"] = [address]
    sidecar = start_sidecar(config)

    def counted(page):
        return page.sum("triton_requests_total", model="double")

    page = sidecar.wait(lambda page: page.sum(UNATTRIBUTED, model="double") >= 10)
    assert page.value("tritonwatch_watcher_up", watcher=address) == 1
    assert not any(page.sum(name, model="double") for name in PRODUCTION)
    # It does not know of this one, and takes what it asks for production.
    assert counted(other.page()) >= 10
    traffic.double(100)
    page = sidecar.wait(lambda page: counted(page) >= 90)
    page = sidecar.settle(4)
    assert 90 <= counted(page) <= 100
