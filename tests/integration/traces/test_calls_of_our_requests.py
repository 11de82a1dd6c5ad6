"""What a Python model calls to answer a request of ours is no production in any phase."""

from __future__ import annotations

import pytest
from traced_tritons import FEW, Sender, records, requests, traces_config

pytestmark = pytest.mark.triton

OURS = "tritonwatch-probe"
"""The id of another sidecar's request: this one has not made it."""
PROBES = 6
PHASES = "triton_request_phase_duration_seconds_count"


def assert_calls_of_ours_are_left_out(sidecar, triton):
    """`caller` calls `double` without passing the request id on."""
    sender = Sender(triton.grpc)
    sidecar.wait(lambda page: records(page, "request") == 0)
    for _ in range(FEW):
        sender.rows("caller", 1, request_id=OURS)
        sender.rows("caller", 1)
    page = sidecar.wait(
        lambda page: (
            requests(page, "caller") == FEW and records(page, "watcher") == 2 * FEW
        )
    )
    assert records(page, "own") == 0
    assert records(page, "child") == FEW
    assert page.value(PHASES, model="double", phase="queue") == FEW
    assert page.value(PHASES, model="caller", phase="queue") == FEW
    assert requests(page, "double") == 0
    for outcome in ("invalid", "orphan", "partial", "duplicate"):
        assert records(page, outcome) == 0


def test_calls_of_our_requests_are_left_out_of_spans(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    config = traces_config(settings, triton, port, otlp={})
    config["probes"] = []
    assert_calls_of_ours_are_left_out(start_sidecar(config), triton)


def test_calls_of_our_requests_are_left_out_of_files(
    files_server, settings, start_sidecar
):
    triton, path = files_server
    config = traces_config(settings, triton, 0, otlp=None, files={"path": str(path)})
    config["probes"] = []
    assert_calls_of_ours_are_left_out(start_sidecar(config), triton)


def test_probes_leave_every_latency_of_production_empty(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    sidecar = start_sidecar(traces_config(settings, triton, port, otlp={}))
    # Of five models, two of which send further requests or pass through others.
    sidecar.wait(lambda page: records(page, "own") >= 5 * PROBES)
    page = sidecar.settle(2)
    for model in ("double", "second", "stream", "caller", "pipeline"):
        assert page.sum("triton_own_requests_total", model=model) > 0
        assert requests(page, model) == 0
        assert not any(page.values(PHASES, model=model))
        assert not page.values("triton_request_latency_seconds", model=model)
    assert records(page, "request") == 0
