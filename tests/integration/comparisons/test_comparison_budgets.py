"""What a shadow comparison may cost, under load, by Triton's own books."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from compared_versions import PAIRS, USED, Load, comparison

from exporter.triton.faulty_model import Fault, set_fault
from exporter.triton.grpc import GrpcClient


def booked(server, version):
    """Triton's own books of one version of `digits`: requests and busy seconds."""
    with contextlib.closing(GrpcClient(server.grpc)) as client:
        (found,) = (
            entry
            for entry in client.statistics(timeout_seconds=10)
            if (entry.name, entry.version) == ("digits", version)
        )
    seconds = 1e-9 * sum(
        part.ns
        for batch in found.batches
        for part in (batch.compute_input, batch.compute_infer, batch.compute_output)
    )
    return np.array([found.success.count, seconds])


@pytest.mark.slow
def test_a_challenger_that_gets_slow_costs_no_more_busy_time(
    compare, server, repository, pixels
):
    """What a pair costs is known afterwards; Triton's own books are the judge."""
    ratio, delay = 0.2, 0.05
    budget = {
        "request_ratio": 1,
        "busy_ratio": ratio,
        "idle_pairs_per_second": 0,
        "max_pairs_per_second": 1000,
    }
    before = {version: booked(server, version) for version in "12"}
    sidecar = compare(comparison(inputs={"source": "synthetic"}, budget=budget))
    sidecar.wait(lambda p: bool(p.all("triton_requests_total", model="digits")), 20)
    with Load(server.grpc, pixels):
        sidecar.wait(lambda p: p.sum(PAIRS) >= 50, 40)
        slow = Fault("slow", factor=1.0, delay_ms=1e3 * delay)
        set_fault(repository, "digits", slow, version="2")
        asked, _ = booked(server, "2")
        sidecar.wait(lambda _: booked(server, "2")[0] >= asked + 6, 60)
        page = sidecar.wait(lambda p: p.value(USED, resource="busy"), 30)
        (requests, champion), (pairs, challenger) = (
            booked(server, version) - before[version] for version in "12"
        )
    on_our_behalf = champion * pairs / requests
    # The one pair that tells how slow it became may go beyond.
    allowed = ratio * (champion - on_our_behalf) + 1.2 * delay
    assert 6 * delay < challenger + on_our_behalf <= allowed
    assert page.value(USED, resource="busy") > 0
