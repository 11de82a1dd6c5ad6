"""Faults of the network, as a client of a real Triton sees them."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from typing import TYPE_CHECKING

import pytest
from fault_cycles import injected, is_undone
from sites import EmbeddedSite
from waiting import patience, wait_until

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from loadtests.chaos.faults.network_faults import (
    Bandwidth,
    NetworkDelay,
    NetworkLoss,
    Partition,
    Reset,
)
from loadtests.chaos.network.proxy_client import fault_proxy
from loadtests.chaos.network.wire import RETRANSMISSION_SECONDS
from loadtests.errors import FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loadtests.chaos.faults.network_faults import NetworkFault


@pytest.fixture(scope="module")
def site(loaded) -> Generator[EmbeddedSite]:
    with fault_proxy(grpc=loaded.grpc, http=loaded.http, seed=3) as proxy:
        yield EmbeddedSite(loaded, proxy=proxy)


INPUT = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1.0] * 8}


def ask_model(address: str, *, padding: int = 0, timeout: float = 20.0) -> float:
    """Seconds of an inference on a connection of its own, answer checked."""
    body = json.dumps({"inputs": [INPUT]}) + " " * padding
    started = time.perf_counter()
    connection = http.client.HTTPConnection(address, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", "/v2/models/double/infer", body)
        answer = connection.getresponse()
        assert json.load(answer)["outputs"][0]["data"] == [2.0] * 8
    return time.perf_counter() - started


def delayed(address: str) -> None:
    assert min(ask_model(address) for _ in range(3)) >= 0.1


def spread(address: str) -> None:
    taken = [ask_model(address) for _ in range(12)]
    assert max(taken) - min(taken) > 0.03


def stalled(address: str) -> None:
    late = 0.9 * RETRANSMISSION_SECONDS
    wait_until(lambda: ask_model(address) >= late, "nothing was ever late")


def narrow(address: str) -> None:
    assert ask_model(address, padding=40_000) >= 0.9 * 40_000 / 64_000


def parted(address: str) -> None:
    with pytest.raises(TimeoutError):
        ask_model(address, timeout=0.4)


def broken(address: str) -> None:
    with pytest.raises(ConnectionError):
        ask_model(address)


CASES = [
    (NetworkDelay(delay_ms=100), delayed),
    (NetworkDelay(delay_ms=50, directions="both"), delayed),
    (NetworkDelay(delay_ms=30, jitter_ms=30), spread),
    (NetworkLoss(loss_percent=15), stalled),
    (Bandwidth(kilobits_per_second=512), narrow),
    (Partition(), parted),
    (Partition(directions="answers"), parted),
    (Reset(), broken),
]


@pytest.mark.parametrize(
    ("fault", "seen"),
    CASES,
    ids=[f"{f.kind}-{f.effect().directions}" for f, _ in CASES],  # type: ignore[attr-defined]
)
def test_a_client_sees_it_and_after_it_is_undone_no_more(
    site: EmbeddedSite,
    undone: list,
    fault: NetworkFault,
    seen: Callable[[str], None],
):
    address = site.proxy.http
    record = injected(fault, site, undone)
    seen(address)
    is_undone(fault, record)
    assert min(ask_model(address) for _ in range(5)) < 0.1


def test_a_grpc_client_sees_them_on_the_connection_that_it_keeps(
    site: EmbeddedSite, undone: list
):
    with contextlib.closing(GrpcClient(site.proxy.grpc)) as client:

        def ready() -> float:
            started = time.perf_counter()
            assert client.ready(timeout_seconds=20.0)
            return time.perf_counter() - started

        quick = min(ready() for _ in range(5))
        delay, reset = NetworkDelay(delay_ms=80), Reset()
        records = [fault.prepare(site) for fault in (delay, reset)]
        undone += [(NetworkDelay, records[0]), (Reset, records[1])]
        delay.inject(records[0])
        assert 0.08 <= min(ready() for _ in range(3)) < quick + 0.16
        NetworkDelay.revert(records[0])
        reset.inject(records[1])
        with pytest.raises(TritonError):
            ready()
        Reset.revert(records[1])
        deadline = time.monotonic() + patience()
        while True:
            # A gRPC channel waits a while before it connects again.
            with contextlib.suppress(TritonError):
                if ready() < 0.08:
                    break
            assert time.monotonic() < deadline


def test_two_of_a_kind_are_undone_one_by_one(site: EmbeddedSite, undone: list):
    first, second = (NetworkDelay(delay_ms=each) for each in (100, 300))
    records = [each.prepare(site) for each in (first, second)]
    for fault, record in zip((first, second), records, strict=True):
        undone.append((NetworkDelay, record))
        fault.inject(record)
    assert ask_model(site.proxy.http) >= 0.4
    NetworkDelay.revert(records[1])
    assert first.missing(records[0]) == []
    assert 0.1 <= min(ask_model(site.proxy.http) for _ in range(3)) < 0.4


def test_a_proxy_that_is_gone_has_taken_its_faults_along(loaded):
    fault = NetworkDelay()
    with fault_proxy(grpc=loaded.grpc, http=loaded.http) as proxy:
        site = EmbeddedSite(loaded, proxy=proxy)
        record = fault.prepare(site)
        fault.inject(record)
    assert "no fault proxy" in fault.missing(record)[0]
    NetworkDelay.revert(record)
    assert NetworkDelay.residue(record) == []
    with pytest.raises(FaultRefusedError, match="no fault proxy listens"):
        fault.prepare(site)


def test_without_a_proxy_it_is_refused_and_the_proxy_named(loaded):
    with pytest.raises(FaultRefusedError) as refused:
        Partition().prepare(EmbeddedSite(loaded))
    assert "there is no fault proxy in front of the server" in str(refused.value)
    assert "proxy: true" in str(refused.value)
