"""Packets that a process lets go when they may: as true as a wire, and never in the way."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from bad_networks import ask_model, http_to, in_own_network, infer, tables
from fault_needs import require_root_for
from sites import EmbeddedSite, EmptySite
from tcp_peers import TcpServer, connect, echo, receive

from loadtests.chaos.faults import FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.bandwidth import Bandwidth
from loadtests.chaos.faults.network_delay import NetworkDelay
from loadtests.chaos.faults.network_loss import NetworkLoss
from loadtests.chaos.faults.partition import Partition
from loadtests.chaos.network import packet_queue
from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.mechanism import Wanted
from loadtests.chaos.network.nfqueue import Nfqueue
from loadtests.chaos.primitives.processes import new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.faults.network import NetworkFault
    from loadtests.chaos.primitives.processes import ProcessRef

TOTAL_RETRANSMISSIONS = 100
"""Where tcp_info of linux/tcp.h has tcpi_total_retrans, 32 bits."""


@pytest.fixture(autouse=True)
def needs_root() -> None:
    require_root_for("nfqueue")


@pytest.fixture
def server() -> Generator[TcpServer]:
    with TcpServer(echo) as found:
        yield found


@contextlib.contextmanager
def injected(fault: NetworkFault, address: str) -> Generator[dict[str, Any]]:
    """Within, the network to that server is bad; after, nothing is left of it."""
    here = EmptySite(grpc=address, http=address)
    fault.require(here)
    record = json.loads(json.dumps(fault.prepare(here)))
    try:
        fault.inject(record)
        assert fault.missing(record) == []
        yield record
    finally:
        type(fault).revert(record)
        assert type(fault).residue(record) == []


def agent(record: dict[str, Any]) -> ProcessRef:
    (found,) = started_with(record["token"])
    return found


def round_trip(connection: socket.socket, size: int = 1000) -> float:
    """Seconds."""
    started = time.perf_counter()
    connection.sendall(bytes(size))
    assert len(receive(connection, size)) == size
    return time.perf_counter() - started


def retransmissions(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int(struct.unpack_from("=I", info, TOTAL_RETRANSMISSIONS)[0])


@pytest.mark.parametrize(("directions", "times"), [("requests", 1), ("both", 2)])
def test_a_delay_is_what_was_asked_for(server: TcpServer, directions: str, times: int):
    fault = NetworkDelay(delay_ms=20, directions=directions, mechanism="nfqueue")
    with connect(server.address) as connection:
        before = min(round_trip(connection) for _ in range(50))
        with injected(fault, server.address):
            late = min(round_trip(connection) for _ in range(50))
    # Never early; `make bench ONLY=fault_nfqueue` has how late.
    assert late >= 0.02 * times
    assert late - before < 0.02 * times + 0.01


def test_a_real_server_is_as_much_later_as_was_asked_for(loaded, undone):
    fault = NetworkDelay(delay_ms=20, mechanism="nfqueue")
    record = fault.prepare(EmbeddedSite(loaded))
    undone.append((NetworkDelay, record))
    with contextlib.closing(http_to(loaded.http)) as connection:
        before = min(infer(connection) for _ in range(30))
        fault.inject(record)
        late = min(infer(connection) for _ in range(30))
        # On a connection of its own the handshake is late too.
        anew = min(ask_model(loaded.http) for _ in range(10))
        NetworkDelay.revert(record)
        after = min(infer(connection) for _ in range(30))
    assert 0.02 <= late < before + 0.03
    assert 0.04 <= anew < before + 0.06
    assert after < 0.02


def test_what_is_lost_is_sent_again_by_tcp(server: TcpServer):
    fault = NetworkLoss(loss_percent=30, mechanism="nfqueue")
    with connect(server.address, 60.0) as connection:
        for _ in range(20):
            round_trip(connection)
        assert retransmissions(connection) == 0
        with injected(fault, server.address):
            deadline = time.monotonic() + 30
            while not retransmissions(connection):
                round_trip(connection)
                assert time.monotonic() < deadline, "nothing was sent again"


def test_a_narrow_link_is_one_for_all_connections(server: TcpServer):
    fault = Bandwidth(
        kilobits_per_second=800, directions="requests", mechanism="nfqueue"
    )
    with (
        connect(server.address) as one,
        connect(server.address) as other,
        injected(fault, server.address),
    ):
        started = time.perf_counter()
        for connection in (one, other):
            connection.sendall(bytes(20_000))
        for connection in (one, other):
            assert len(receive(connection, 20_000)) == 20_000
        # 40 kB at 100 kB/s.
        assert time.perf_counter() - started >= 0.4


def test_a_server_of_ipv6_has_a_bad_network_too():
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listener,
        contextlib.ExitStack() as ends,
    ):
        port = listener.getsockname()[1]
        fault = Partition(mechanism="nfqueue")
        client = ends.enter_context(socket.create_connection(("::1", port), 0.4))
        peer, _ = listener.accept()
        ends.enter_context(peer)
        with injected(fault, f"[::1]:{port}"):
            client.sendall(b"anybody")
            assert not select.select([peer], [], [], 0.4)[0]
        # TCP has kept it, and sends it again.
        assert receive(peer, 7) == b"anybody"


def test_who_delays_is_killed_and_packets_flow(server: TcpServer):
    fault = NetworkDelay(delay_ms=500, mechanism="nfqueue")
    with connect(server.address) as connection:
        with injected(fault, server.address) as record:
            assert round_trip(connection) >= 0.5
            connection.sendall(b"on its way")
            assert agent(record).kill(5)
            # What the kernel dropped TCP sends again.
            assert receive(connection, 10) == b"on its way"
            assert min(round_trip(connection) for _ in range(5)) < 0.5
            queue = record["queues"]["requests"]
            assert fault.missing(record) == [
                f"nobody delays requests: queue {queue} is not read"
            ]
            assert record["token"] in tables()
        assert record["token"] not in tables()


def test_what_is_on_its_way_when_it_is_undone_arrives(server: TcpServer):
    fault = NetworkDelay(delay_ms=10_000, mechanism="nfqueue")
    with connect(server.address, 5.0) as connection:
        with injected(fault, server.address):
            connection.sendall(b"late")
        assert receive(connection, 4) == b"late"
        # At once, and not by being lost and sent again.
        assert retransmissions(connection) == 0


def test_two_at_once_add_up_and_are_undone_one_by_one(server: TcpServer):
    first = NetworkDelay(delay_ms=50, mechanism="nfqueue")
    second = NetworkDelay(delay_ms=100, mechanism="nfqueue")
    with connect(server.address) as connection:
        with injected(first, server.address):
            with injected(second, server.address):
                assert round_trip(connection) >= 0.15
            assert 0.05 <= min(round_trip(connection) for _ in range(5)) < 0.15
        assert min(round_trip(connection) for _ in range(5)) < 0.05


def test_a_stopped_process_is_ended_too(server: TcpServer):
    with injected(Partition(mechanism="nfqueue"), server.address) as record:
        agent(record).send(signal.SIGSTOP)
    assert started_with(record["token"]) == []


def test_what_is_too_much_at_once_is_told(server: TcpServer):
    fault = NetworkDelay(delay_ms=100, mechanism="nfqueue")
    sent = packet_queue.KEPT_PACKETS + 100

    def act() -> None:
        # Of packets that are no part of a connection, so that nobody waits for an answer.
        with TcpServer(echo) as here, injected(fault, here.address) as record:
            agent(record).send(signal.SIGSTOP)
            port = int(here.address.rpartition(":")[2])
            with socket.socket(
                socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP
            ) as raw:
                head = struct.pack("!HHIIBBHHH", 1, port, 0, 0, 5 << 4, 4, 0, 0, 0)
                for _ in range(sent):
                    raw.sendto(head, ("127.0.0.1", 0))
            (said,) = fault.missing(record)
            assert "packets of requests too many at once" in said
            assert int(said.split()[0]) >= 100

    in_own_network(act)


def test_a_queue_that_is_another_process_is_left_to_it(server: TcpServer):
    fault = Partition(mechanism="nfqueue")
    with injected(fault, server.address) as record:
        second = {**record, "token": new_token()}
        with pytest.raises(FaultFailedError, match=r"is another process's"):
            fault.inject(second)
        assert Partition.residue(second) == []
        Partition.revert(second)
        assert fault.missing(record) == []


def test_rules_that_somebody_removes_are_missed(server: TcpServer):
    fault = Partition(mechanism="nfqueue")
    with injected(fault, server.address) as record:
        subprocess.run(["nft", "flush", "table", "inet", record["token"]], check=True)
        rules = 4 if record["rule"] == "target" else 2
        assert fault.missing(record) == [
            f"the nftables table {record['token']} has 0 rules of {rules}"
        ]


def test_without_nft_it_is_refused(server: TcpServer, monkeypatch, tmp_path):
    fault = NetworkDelay(mechanism="nfqueue")
    here = EmptySite(grpc=server.address, http=server.address)
    fault.require(here)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("loadtests.chaos.primitives.programs._PATH", str(tmp_path))
    with pytest.raises(FaultRefusedError, match="nft is not installed"):
        fault.require(here)


def test_iptables_target_does_it_where_nftables_has_a_statement_too(server: TcpServer):
    here = EmptySite(grpc=server.address, http=server.address)
    wanted = Wanted(Effect(delay_seconds=0.05), ("grpc",), new_token())
    record = Nfqueue().prepare(here, wanted) | {"rule": "target"}
    try:
        Nfqueue().inject(record)
        assert Nfqueue().missing(record) == []
        with connect(server.address) as connection:
            assert round_trip(connection) >= 0.05
    finally:
        Nfqueue().revert(record)
    assert Nfqueue().residue(record) == []
