"""From the real Triton's spans to /metrics."""

from __future__ import annotations

import time

import pytest
from traced_tritons import (
    FEW,
    REQUESTS,
    Collector,
    Sender,
    assert_phases_add_up,
    assert_quantiles_match,
    records,
    requests,
    traces_config,
)

pytestmark = pytest.mark.triton


def test_spans_of_the_real_triton_become_the_latency_of_production(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    collector = Collector(port)
    config = traces_config(
        settings,
        triton,
        collector.tap_port,
        window_seconds=600,
    )
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.sum("triton_probe_total", outcome="ok") > 10)
    sender = Sender(triton.grpc)
    sender.rows("double", REQUESTS)
    page = sidecar.wait(lambda page: requests(page, "double") == REQUESTS)
    assert_phases_add_up(page, "double")
    exact = collector.seconds("double")
    own = len(exact) - REQUESTS
    assert own > 0, "the probes of this test leave spans as well"
    assert records(page, "own") >= own
    for outcome in ("invalid", "unknown_model", "partial", "duplicate"):
        assert records(page, outcome) == 0

    sender.rows("pipeline", FEW)
    page = sidecar.wait(lambda page: requests(page, "pipeline") == FEW)
    assert requests(page, "double") == REQUESTS
    assert requests(page, "second") == 0
    assert records(page, "child") == 2 * FEW
    queued = "triton_request_phase_duration_seconds_count"
    assert page.value(queued, model="second", phase="queue") == FEW
    assert page.value(queued, model="double", phase="queue") == REQUESTS + FEW
    assert {kind for kind, _ in collector.bodies} == {"application/json"}
    collector.close()


def test_quantiles_of_spans_are_those_of_the_very_requests(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    collector = Collector(port)
    config = traces_config(settings, triton, collector.tap_port)
    config["probes"] = []
    # What earlier tests left in Triton's buffer has gone by then.
    time.sleep(0.5)
    sidecar = start_sidecar(config)
    Sender(triton.grpc).rows("double", REQUESTS)
    page = sidecar.wait(lambda page: requests(page, "double") >= REQUESTS)
    assert_quantiles_match(page, "double", collector.seconds("double"))
    lines = sidecar.get("/metrics", accept="application/openmetrics-text").text
    exemplars = [line for line in lines.splitlines() if '# {trace_id="' in line]
    assert exemplars
    told = b"".join(body for _, body in collector.bodies).decode()
    for line in exemplars:
        trace_id = line.partition('# {trace_id="')[2].partition('"')[0]
        assert f'"traceId":"{trace_id}"' in told
    collector.close()


def test_the_requests_of_another_sidecar_are_told_apart_and_are_no_latency(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    sidecar = start_sidecar(traces_config(settings, triton, port))
    # Until the latest spans of tests before this one have come.
    time.sleep(1)
    before = records(sidecar.page(), "watcher")
    other = start_sidecar(settings(triton))
    other.wait(lambda page: page.sum("triton_probe_total", outcome="ok") > 10)
    sender = Sender(triton.grpc)
    sender.rows("double", FEW)
    page = sidecar.wait(
        lambda page: (
            records(page, "watcher") > before + 10 and requests(page, "double") >= FEW
        )
    )
    assert requests(page, "double") == FEW
    assert records(page, "request") == FEW
    assert records(page, "own") > 0
