"""Faults of those that a real sidecar talks to."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from fault_cycles import injected, is_undone
from monitoring import Job, free_port
from requirements import as_nobody, require_root
from sidecars import SidecarProcess
from sites import EmbeddedSite, empty_site
from tcp_peers import TcpServer, connect, echo
from waiting import wait_until

from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.process_faults import OtlpHang, PrometheusAway, TapStalled
from loadtests.chaos.measuring.polling import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


EXPORTS = "tritonwatch_otlp_exports_total"
IN_A_ROW = "tritonwatch_otlp_consecutive_failures"


@contextlib.contextmanager
def collector(port: str) -> Generator[subprocess.Popen[bytes]]:
    module = "loadtests.chaos.running.collector"
    command = [sys.executable, "-m", module, "127.0.0.1", port]
    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: fetch(f"127.0.0.1:{port}", "/-/ready") is not None)
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def site(loaded, tmp_path_factory) -> Generator[EmbeddedSite]:
    """A Triton, its sidecar, and addresses of a collector and a tap."""
    peers = {name: f"127.0.0.1:{free_port()}" for name in ("otlp", "tap", "tap_grpc")}
    ports = {name: int(each.rpartition(":")[2]) for name, each in peers.items()}
    config = {
        "target": {"grpc": loaded.grpc, "http": loaded.http, "metrics": loaded.metrics},
        "listen": {
            "address": "127.0.0.1",
            "port": 0,
            "tap": {"port": ports["tap"], "grpc_port": ports["tap_grpc"]},
        },
        "collectors": [{"kind": "mirror"}],
        "otlp": {
            "endpoint": f"http://{peers['otlp']}",
            "interval_seconds": 0.2,
            "timeout_seconds": 0.5,
        },
        "power": None,
    }
    sidecar = SidecarProcess(config, tmp_path_factory.mktemp("sidecar"))
    try:
        sidecar.wait_listening()
        yield EmbeddedSite(loaded, beside=sidecar, peers=peers)
    finally:
        sidecar.close()


def rises(sidecar: SidecarProcess, name: str, **labels: str) -> None:
    """The counter goes up from now on."""
    before = sidecar.page().sum(name, **labels)
    sidecar.wait(lambda page: page.sum(name, **labels) > before, 20)


def test_a_collector_that_hangs_costs_its_pushes_and_nothing_else(
    site: EmbeddedSite, undone: list
):
    with collector(site.peers["otlp"].rpartition(":")[2]) as process:
        rises(site.beside, EXPORTS, outcome="ok")
        fault = OtlpHang()
        record = injected(fault, site, undone)
        assert record["process"][0] == process.pid
        rises(site.beside, EXPORTS, outcome="failed")
        site.beside.wait(lambda page: page.value(IN_A_ROW, kind="metrics") > 1, 20)
        is_undone(fault, record)
        rises(site.beside, EXPORTS, outcome="ok")
        site.beside.wait(lambda page: page.value(IN_A_ROW, kind="metrics") == 0, 20)


def test_a_tap_whose_reader_stops_takes_connections_and_answers_none(
    site: EmbeddedSite, undone: list
):
    fault = TapStalled()
    record = injected(fault, site, undone)
    assert record["process"][0] == site.beside.process.pid
    with connect(record["address"], 0.3) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        is_undone(fault, record)
        connection.settimeout(20)
        assert connection.recv(9) == b"HTTP/1.1 "
    assert site.beside.get("/-/healthy").status == 200


def test_a_prometheus_that_is_away_scrapes_again_afterwards(
    site: EmbeddedSite, start_prometheus: Callable[..., Any], undone: list
):
    prometheus = start_prometheus(Job([site.beside.port]), scrape_interval="200ms")
    prometheus.wait("up == 1")
    here = empty_site(peers={"prometheus": f"127.0.0.1:{prometheus.port}"})
    fault = PrometheusAway()
    record = injected(fault, here, undone)
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(f"{prometheus.url}/-/ready", timeout=0.3)
    assert site.beside.get("/metrics").status == 200
    is_undone(fault, record)
    since = time.time()
    prometheus.wait(f"timestamp(up == 1) > {since}")


def test_nobody_can_be_away_who_is_not_there():
    here = empty_site(peers={"prometheus": f"127.0.0.1:{free_port()}"})
    with pytest.raises(FaultRefusedError, match="nothing listens at"):
        PrometheusAway().prepare(here)
    with pytest.raises(FaultRefusedError, match="has no tap") as refused:
        TapStalled().prepare(here)
    assert "address" in refused.value.alternative


def test_what_is_anothers_is_refused():
    require_root("to be two users")
    port = str(free_port())
    with collector(port):
        here = empty_site(peers={"otlp": f"127.0.0.1:{port}"})
        # Root may. What it imports for that may lie where nobody can read it.
        OtlpHang().prepare(here)
        with as_nobody(), pytest.raises(FaultRefusedError, match="not visible"):
            OtlpHang().prepare(here)


def test_a_program_does_not_stop_itself():
    with TcpServer(echo) as server, pytest.raises(FaultRefusedError, match="itself"):
        OtlpHang(address=server.address).prepare(empty_site())


@pytest.mark.parametrize("address", ["10.0.0.1:4317", "example.org:80", "127.0.0.1"])
def test_only_addresses_of_this_host_are_taken(address: str):
    with pytest.raises(ValueError, match="String should match pattern"):
        OtlpHang(address=address)
