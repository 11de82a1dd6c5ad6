"""Faults of the network, as a client of a real Triton sees them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from bad_networks import ask_model, echoed, in_own_network, tables
from fault_cycles import injected, is_undone
from fault_needs import require_root_for
from parts import as_nobody, require_root
from sites import EmbeddedSite, empty_site
from tcp_peers import TcpServer, connect, echo, receive
from waiting import patience

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.network import (
    Bandwidth,
    NetworkDelay,
    NetworkJitter,
    NetworkLoss,
    Partition,
    Reset,
)
from loadtests.chaos.network.effect import RETRANSMISSION_SECONDS
from loadtests.chaos.network.proxy_client import ask, fault_proxy
from loadtests.chaos.primitives.process_refs import new_token
from loadtests.chaos.undoing.undo import undo_all
from loadtests.chaos.undoing.undo_journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from loadtests.chaos.faults.network import NetworkFault


@pytest.fixture(scope="module")
def site(loaded) -> Generator[EmbeddedSite]:
    with fault_proxy(grpc=loaded.grpc, http=loaded.http, seed=3) as proxy:
        yield EmbeddedSite(loaded, proxy=proxy.control)


def has_netem() -> bool:
    """Whether the kernel has netem, tried in a network that ends with the command."""
    command = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def delayed(address: str) -> None:
    assert min(ask_model(address) for _ in range(3)) >= 0.1


def spread(address: str) -> None:
    taken = [ask_model(address) for _ in range(12)]
    assert max(taken) - min(taken) > 0.03


def stalled(address: str) -> None:
    deadline = time.monotonic() + patience()
    while ask_model(address) < 0.9 * RETRANSMISSION_SECONDS:
        assert time.monotonic() < deadline, "nothing was ever late"


def narrow(address: str) -> None:
    assert ask_model(address, padding=40_000) >= 0.9 * 40_000 / 64_000


def parted(address: str) -> None:
    with pytest.raises(TimeoutError):
        ask_model(address, timeout=0.4)


def broken(address: str) -> None:
    with pytest.raises(ConnectionError):
        ask_model(address)


CASES = [
    (NetworkDelay(delay_ms=100, mechanism="proxy"), delayed),
    (NetworkDelay(delay_ms=50, directions="both", mechanism="proxy"), delayed),
    (NetworkJitter(delay_ms=30, jitter_ms=30, mechanism="proxy"), spread),
    (NetworkLoss(loss_percent=15, mechanism="proxy"), stalled),
    (NetworkLoss(loss_percent=15, mechanism="nft"), stalled),
    (Bandwidth(kilobits_per_second=512, mechanism="proxy"), narrow),
    (Partition(mechanism="proxy"), parted),
    (Partition(mechanism="nft"), parted),
    (Partition(mechanism="nft", directions="answers"), parted),
    (Reset(mechanism="proxy"), broken),
    (Reset(mechanism="nft"), broken),
]


@pytest.mark.parametrize(
    ("fault", "seen"),
    CASES,
    ids=[f"{f.kind}-{f.mechanism}-{f.effect().directions}" for f, _ in CASES],
)
def test_a_client_sees_it_and_after_it_is_undone_no_more(
    site: EmbeddedSite,
    undone: list,
    fault: NetworkFault,
    seen: Callable[[str], None],
):
    require_root_for(fault.mechanism)
    address = site.proxy.http if fault.mechanism == "proxy" else site.http
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
        delay, reset = (
            NetworkDelay(delay_ms=80, mechanism="proxy"),
            Reset(mechanism="proxy"),
        )
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


def test_rules_are_in_a_table_of_their_own_for_the_servers_ports_alone():
    require_root_for("nft")

    def act() -> None:
        with (
            TcpServer(echo) as http,
            TcpServer(echo) as grpc,
            TcpServer(echo) as other,
            connect(other.address) as neighbour,
        ):
            here = empty_site(grpc=grpc.address, http=http.address)
            fault = Partition(mechanism="nft", protocols=("http",))
            record = fault.prepare(here)
            assert tables() == set()
            fault.inject(record)
            assert tables() == {record["token"]}
            neighbour.sendall(b"as before")
            assert receive(neighbour, 9) == b"as before"
            with connect(grpc.address, 2.0):
                pass
            with pytest.raises(TimeoutError):
                connect(http.address, 0.4)
            Partition.revert(record)
            assert tables() == set()

    in_own_network(act)


def test_two_of_a_kind_are_undone_one_by_one(site: EmbeddedSite, undone: list):
    first, second = (
        NetworkDelay(delay_ms=each, mechanism="proxy") for each in (100, 300)
    )
    records = [each.prepare(site) for each in (first, second)]
    for fault, record in zip((first, second), records, strict=True):
        undone.append((NetworkDelay, record))
        fault.inject(record)
    assert ask_model(site.proxy.http) >= 0.4
    NetworkDelay.revert(records[1])
    assert first.missing(records[0]) == []
    assert 0.1 <= min(ask_model(site.proxy.http) for _ in range(3)) < 0.4


def test_rules_that_somebody_removes_are_missed(site: EmbeddedSite, undone: list):
    require_root_for("nft")
    fault = Partition(mechanism="nft")
    record = injected(fault, site, undone)
    subprocess.run(["nft", "flush", "table", "inet", record["token"]], check=True)
    assert fault.missing(record) == [
        f"the nftables table {record['token']} has 0 rules of 2"
    ]


def test_a_proxy_that_is_gone_has_taken_its_faults_along(loaded):
    fault = NetworkDelay(mechanism="proxy")
    with fault_proxy(grpc=loaded.grpc, http=loaded.http) as proxy:
        site = EmbeddedSite(loaded, proxy=proxy.control)
        record = fault.prepare(site)
        fault.inject(record)
    assert "no fault proxy" in fault.missing(record)[0]
    NetworkDelay.revert(record)
    assert NetworkDelay.residue(record) == []
    with pytest.raises(FaultRefusedError, match="no fault proxy listens"):
        fault.require(site)


def test_without_root_the_proxy_is_taken_or_named(loaded, site: EmbeddedSite):
    require_root("to be two users")
    # Root may. What it imports for that may lie where nobody can read it.
    Partition().require(site)
    with as_nobody():
        with pytest.raises(FaultRefusedError) as refused:
            Partition().require(EmbeddedSite(loaded))
        for mechanism in ("netem", "nft"):
            assert f"{mechanism}: needs root; " in refused.value.reason
        assert "no fault proxy stands before the server" in refused.value.reason
        assert "proxy" in refused.value.alternative
        with pytest.raises(FaultRefusedError, match="nft: needs root"):
            Partition(mechanism="nft").require(site)


def test_only_loopback_is_touched():
    require_root_for("nft")
    elsewhere = empty_site(grpc="10.0.0.7:8001", http="127.0.0.1:8000")
    with pytest.raises(FaultRefusedError, match=r"10\.0\.0\.7:8001 is not"):
        Partition(mechanism="nft").require(elsewhere)


def test_what_a_mechanism_cannot_do_it_says(site: EmbeddedSite):
    require_root_for("nft")
    for fault, reason in (
        (NetworkDelay(mechanism="nft"), "nft: cannot delay packets"),
        (Bandwidth(mechanism="nft"), "nft: cannot make a link narrow"),
        (Reset(mechanism="netem"), "netem: cannot reset connections"),
    ):
        with pytest.raises(FaultRefusedError, match=reason):
            fault.require(site)


def test_auto_takes_the_first_that_can(site: EmbeddedSite):
    delay = NetworkDelay().prepare(site)
    reset = Reset().prepare(site)
    if os.geteuid() == 0:
        # Not every kernel has netem.
        assert delay["mechanism"] == ("netem" if has_netem() else "proxy")
        assert reset["mechanism"] == "nft"
    else:
        assert delay["mechanism"] == reset["mechanism"] == "proxy"
    assert ask(site.proxy.control, {"do": "state"})["faults"] == {}


def test_the_kernels_disciplines_make_a_link_narrow():
    """In a network of its own: the loopback of all is no place for a test."""
    require_root_for("nft")

    def act() -> None:
        with TcpServer(echo) as server, TcpServer(echo) as neighbour:
            here = empty_site(grpc=server.address, http=server.address)
            fault = Bandwidth(
                kilobits_per_second=800, directions="requests", mechanism="netem"
            )
            fault.require(here)
            record = fault.prepare(here)
            assert fault.missing(record)
            assert fault.residue(record) == []
            quick = echoed(server.address)
            fault.inject(record)
            assert fault.missing(record) == []
            # The kernel lets one packet go into debt, which the next ones pay.
            assert echoed(server.address) >= 0.5
            assert echoed(neighbour.address) < 0.5
            with pytest.raises(FaultRefusedError, match="of somebody else's"):
                fault.require(here)
            for _ in range(2):
                Bandwidth.revert(record)
                assert Bandwidth.residue(record) == []
            assert echoed(server.address) < 0.5
            assert quick < 0.5

    in_own_network(act)


def test_a_kernel_without_netem_is_refused_with_its_own_words():
    require_root_for("nft")
    faults = (
        NetworkDelay(mechanism="netem"),
        NetworkJitter(mechanism="netem", directions="both"),
        NetworkLoss(mechanism="netem"),
        Partition(mechanism="netem"),
    )

    def act() -> None:
        here = empty_site(grpc="127.0.0.1:1", http="127.0.0.1:2")
        for fault in faults:
            if has_netem():
                fault.require(here)
                continue
            # The kernel's answer, not tc's: what it was asked can be asked.
            with pytest.raises(FaultRefusedError, match="qdisc kind is unknown") as no:
                fault.require(here)
            assert "modprobe sch_netem" in no.value.reason
            assert "proxy: true" in no.value.alternative

    in_own_network(act)


def test_a_mechanism_of_another_version_is_left_to_that_version(tmp_path: Path):
    journal = Journal.create(tmp_path, "newer")
    journal.open("network_delay", {"mechanism": "xdp", "token": new_token()})
    journal.end()
    (run,) = undo_all(tmp_path)
    assert run.undone == ()
    assert "found no mechanism 'xdp' in this version" in run.problems[0]
    assert len(list(tmp_path.iterdir())) == 1
