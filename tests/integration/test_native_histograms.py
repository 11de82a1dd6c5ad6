"""Native histograms, taken by a real Prometheus from the real sidecar."""

from __future__ import annotations

import time

import pytest
from monitoring import Job

pytestmark = pytest.mark.triton

GROWTH = 2 ** (2**-5)


def test_prometheus_takes_the_buckets_and_has_the_sidecars_median(
    playground, settings, start_sidecar, start_prometheus
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.1}))
    server = start_prometheus(Job([sidecar.port]), features=["native-histograms"])
    server.wait("histogram_count(triton_probe_duration_seconds) > 60")
    (found,) = server.query(
        'triton_probe_duration_seconds{model="double",protocol="grpc"}'
    )
    native = found["histogram"][1]
    buckets = [
        (float(low), float(high), float(count))
        for _, low, high, count in native["buckets"]
    ]
    assert sum(count for *_, count in buckets) == float(native["count"])
    assert all(
        high / low == pytest.approx(GROWTH, rel=1e-9) for low, high, _ in buckets
    )
    # The sum lies between what the buckets' bounds allow: no index is off by one.
    low = sum(low * count for low, _, count in buckets)
    high = sum(high * count for _, high, count in buckets)
    assert low <= float(native["sum"]) <= high
    assert not server.query("triton_probe_duration_seconds_bucket")
    assert server.query("up")[0]["value"][1] == "1"
    selector = 'model="double",protocol="grpc"'
    (pair,) = server.query(
        f"histogram_quantile(0.5, triton_probe_duration_seconds{{{selector}}})"
        f" / on (model, protocol)"
        f' triton_probe_latency_seconds{{{selector},quantile="0.5"}}'
    )
    # Prometheus takes a bucket's upper part by interpolation, we its middle.
    assert 1 / GROWTH**2 <= float(pair["value"][1]) <= GROWTH**2


def test_without_the_feature_the_classic_buckets_come(
    playground, settings, start_sidecar, start_prometheus
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.1}))
    server = start_prometheus(Job([sidecar.port]), features=["exemplar-storage"])
    server.wait('triton_probe_duration_seconds_bucket{le="+Inf"} > 10')
    assert not server.query("histogram_count(triton_probe_duration_seconds)")
    found = server.get(
        "query_exemplars",
        query="triton_probe_duration_seconds_bucket",
        start=str(time.time() - 60),
        end=str(time.time() + 1),
    )
    assert found
    exemplar = found[0]["exemplars"][0]
    assert exemplar["labels"]["request_id"].startswith("tritonwatch-synthetic-")
