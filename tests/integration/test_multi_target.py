"""/probe?target=&module= against a real Triton, as blackbox_exporter's users know it."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.triton


@pytest.fixture
def sidecar(playground, settings, start_sidecar, unused_port):
    """Watches nothing; may look at the playground and at a port where nobody is."""
    config = settings(playground, probe={"name": "tensors"})
    config["target"] = {"grpc": f"127.0.0.1:{unused_port}", "http": None}
    config["target"]["metrics"] = None
    config["multi_target"] = {
        "allow": [playground.grpc, playground.http, f"127.0.0.1:{unused_port}"]
    }
    return start_sidecar(config)


def look(sidecar, query: str, **headers):
    answer = sidecar.get(f"/probe?{query}", **headers)
    assert answer.status == 200, answer.text
    return sidecar.parsed(answer)


def test_a_look_probes_every_model_by_both_protocols(sidecar, playground):
    page = look(sidecar, f"target={playground.grpc}&http={playground.http}")
    assert page.value("probe_success") == 1
    assert page.value("triton_up") == page.value("triton_ready") == 1
    labels = {"probe": "tensors", "version": "1"}
    for model in ("double", "sleepy"):
        for protocol in ("grpc", "http"):
            key = {"model": model, "protocol": protocol, **labels}
            assert page.value("triton_probe_success", **key) == 1
            seconds = page.value("triton_probe_last_duration_seconds", **key)
            assert 0 < seconds < page.value("probe_duration_seconds")
    # What is looked at there is not what is watched here.
    assert sidecar.page().value("triton_up") == 0


def test_without_an_http_address_only_grpc_is_probed(sidecar, playground):
    page = look(sidecar, f"target={playground.grpc}&module=tensors")
    assert page.label("triton_probe_success", "protocol") == {"grpc"}
    assert page.value("probe_success") == 1


def test_a_frozen_target_is_answered_within_the_timeout_of_the_scrape(
    sidecar, playground
):
    playground.triton.freeze()
    started = time.monotonic()
    page = look(
        sidecar,
        f"target={playground.grpc}&http={playground.http}",
        x_prometheus_scrape_timeout_seconds="2",
    )
    seconds = time.monotonic() - started
    playground.triton.thaw()
    assert page.value("probe_success") == 0
    assert seconds < 2
    page = look(sidecar, f"target={playground.grpc}")
    assert page.value("probe_success") == 1
