"""Native histograms, taken by a real Prometheus from the real sidecar."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
import yaml

pytestmark = [pytest.mark.triton, pytest.mark.timeout(120)]

GROWTH = 2 ** (2**-5)


@pytest.fixture
def prometheus(tmp_path):
    """Start a Prometheus on a scrape target, with feature flags."""
    if shutil.which("prometheus") is None:
        message = "prometheus is not installed: apt-get install prometheus"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    processes: list[subprocess.Popen] = []

    def start(target_port: int, *features: str) -> Prometheus:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        folder = tmp_path / f"prometheus-{port}"
        folder.mkdir()
        scrape = {
            "job_name": "tritonwatch",
            "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}],
        }
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump(
                {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
            )
        )
        flags = [f"--enable-feature={','.join(features)}"] if features else []
        processes.append(
            subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=error",
                    *flags,
                ]
            )
        )
        return Prometheus(port)

    yield start
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(10)


class Prometheus:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> dict:
        url = f"{self._base}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str) -> list[dict]:
        return self.get("query", query=expression)["result"]

    def wait(self, expression: str, seconds: float = 30) -> list[dict]:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                found = self.query(expression)
                if found:
                    return found
            assert time.monotonic() < deadline, f"{expression} stays empty"
            time.sleep(0.2)


def test_prometheus_takes_the_buckets_of_the_one_histogram(
    playground, settings, start_sidecar, prometheus
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.1}))
    server = prometheus(sidecar.port, "native-histograms")
    server.wait("histogram_count(triton_probe_duration_seconds) > 30")
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


def test_its_median_is_the_sidecars_own(
    playground, settings, start_sidecar, prometheus
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.1}))
    server = prometheus(sidecar.port, "native-histograms")
    server.wait("histogram_count(triton_probe_duration_seconds) > 60")
    selector = 'model="double",protocol="grpc"'
    (pair,) = server.query(
        f"histogram_quantile(0.5, triton_probe_duration_seconds{{{selector}}})"
        f" / on (model, protocol)"
        f' triton_probe_latency_seconds{{{selector},quantile="0.5"}}'
    )
    # Prometheus takes a bucket's upper part by interpolation, we its middle.
    assert 1 / GROWTH**2 <= float(pair["value"][1]) <= GROWTH**2


def test_without_the_feature_the_classic_buckets_come(
    playground, settings, start_sidecar, prometheus
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.1}))
    server = prometheus(sidecar.port, "exemplar-storage")
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
