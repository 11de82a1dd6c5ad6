"""Triton away, dead behind its front, or with very many models: the sidecar says so."""

from __future__ import annotations

import time

import pytest
from fake_triton import FakeTriton, many

pytestmark = pytest.mark.triton


def up(page) -> bool:
    return page.value("triton_up") == 1


def down(page) -> bool:
    return page.value("triton_up") == 0 and page.value("triton_ready") == 0


def serving(page) -> bool:
    values = page.values("triton_model_serving")
    return bool(values) and min(values) == 1


def test_a_server_that_is_not_there_yet_is_down_until_it_comes(
    playground, settings, start_sidecar, limits
) -> None:
    triton = playground.triton
    triton.kill()
    sidecar = start_sidecar(settings(playground))
    page = sidecar.wait(down, limits.notice)
    assert not page.all("triton_model_ready"), "nobody knows of any model"
    assert not page.all("triton_server_info")
    assert sidecar.get("/-/ready").status == 200, "ready does not depend on Triton"
    triton.start()
    since = time.monotonic()
    sidecar.wait(up, limits.recovery, since=since)


@pytest.mark.slow
def test_five_hundred_models_are_found_and_probed_within_the_rate(
    settings, start_sidecar
) -> None:
    with FakeTriton(many(500)) as fake:
        config = settings(fake, probe={"max_requests_per_second": 50})
        config["collectors"][0] |= {"deadline_seconds": 4}
        config["collectors"][1] |= {"deadline_seconds": 4, "timeout_seconds": 2}
        sidecar = start_sidecar(config)
        sidecar.wait(lambda p: len(p.all("triton_model_ready")) == 500, 20)
        page = sidecar.wait(
            lambda p: p.value("triton_probe_interval_seconds") == 20, 40
        )
        fake.forget()
        started = time.monotonic()
        time.sleep(5)
        took = time.monotonic() - started
        assert fake.received("infer") <= 50 * took * 1.1 + 8
        assert page.value("tritonwatch_collector_success", collector="server") == 1
