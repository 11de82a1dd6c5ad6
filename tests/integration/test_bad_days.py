"""Triton away, dead behind its front, or with very many models: the sidecar says so."""

from __future__ import annotations

import os
import signal
import time
import urllib.request

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


def test_a_dead_backend_is_seen_while_triton_calls_everything_ready(
    playground, settings, start_sidecar, limits
) -> None:
    sidecar = start_sidecar(settings(playground))
    sidecar.wait(serving)
    for pid in playground.triton.stub_pids():
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    page = sidecar.wait(
        lambda p: p.values("triton_model_serving") == [0, 0],
        limits.recovery,
        since=killed,
    )
    assert set(page.values("triton_model_ready")) == {1}
    assert page.value("triton_ready") == 1
    # What it is comes with the answer, which is later than that it is late.
    sidecar.wait(
        lambda p: p.sum("triton_probe_total", outcome="model_error") > 0,
        limits.recovery,
        since=killed,
    )
    # A load alone repairs nothing; after an unload, which hangs, it does.
    for model in ("double", "sleepy"):
        for action in ("unload", "load"):
            url = f"http://{playground.http}/v2/repository/models/{model}/{action}"
            urllib.request.urlopen(url, b"{}", timeout=15).close()
    sidecar.wait(serving, limits.recovery + 1)


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
