"""What cold starts add up to, for people and programs."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from fake_triton import Body, FakeModel, FakeTriton

from exporter.commands.cold_start_measure import (
    Memory,
    Repetition,
    Server,
    resident_bytes,
)
from exporter.commands.cold_start_report import Report, quantile
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

MIB = 1 << 20


def repetition(load, server=None):
    return Repetition(
        load=load,
        first_inference=load + 0.1,
        cold_inference=0.08,
        warm_inference=0.002,
        unloaded=Memory(server=None if server is None else server - 50 * MIB),
        loaded=Memory(server=server),
    )


def report(count, server=None):
    starts = [repetition(1 + n / 100, server) for n in range(count)]
    return Report("m", "2.51.0", starts)


def test_a_median_has_an_interval_from_six_repetitions_on():
    few, enough = (json.loads(report(n).to_json())["seconds"]["load"] for n in (5, 6))
    assert few["low"] is None
    assert enough["low"] <= enough["value"] <= enough["high"]
    assert "too few for an interval" in report(5).to_text()
    assert "too few" not in report(6).to_text()


def test_quantiles_are_order_statistics():
    values = list(np.random.default_rng(1).permutation(np.arange(1, 1001)))
    found = quantile(values, 0.95)
    assert found.value == 950
    assert found.low < 950 < found.high
    assert quantile([], 0.5) is None


def test_memory_that_nobody_tells_is_absent():
    assert json.loads(report(2).to_json())["memory_bytes"]["server"] is None
    assert "memory" not in report(2).to_text()
    told = json.loads(report(2, 200 * MIB).to_json())["memory_bytes"]["server"]
    assert told == {"unloaded": 150 * MIB, "loaded": 200 * MIB}
    assert "150.0 MiB before, 200.0 MiB after" in report(2, 200 * MIB).to_text()


def test_an_unreadable_line_of_the_metrics_page_hides_no_memory():
    page = b'nv_cpu_memory_used_bytes 7\nmine{a="\nnv_gpu_memory_used_bytes{g="0"} 5\n'
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("metrics").reply(Body(page))
        grpc, http = GrpcClient(fake.grpc), HttpClient(fake.http)
        metrics = HttpClient(fake.metrics)
        server = Server(grpc, http, metrics, pid=None, timeout_seconds=5)
        memory = server.memory("m")
        for client in (grpc, http, metrics):
            client.close()
    assert (memory.host, memory.gpu) == (7, 5)


def test_resident_memory_counts_descendants_and_knows_the_gone():
    own = resident_bytes(os.getpid())
    assert own is not None
    assert own > MIB
    # Larger than what malloc would take from memory that is resident already.
    ballast = np.ones(64 * MIB, np.uint8)
    assert resident_bytes(os.getpid()) > own + 32 * MIB
    assert ballast.size
    assert resident_bytes(2**22 + 1) is None


@pytest.mark.parametrize("count", [1, 3])
def test_the_text_names_the_model_and_how_often(count):
    assert report(count).to_text().startswith(f"m: {count} cold starts\n")
