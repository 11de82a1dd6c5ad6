"""The TCP fault proxy between real sockets."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tcp_peers import TcpServer, connect, echo, receive
from waiting import patience, wait_until

from loadtests.chaos.network.proxy_client import (
    ProxyFailedError,
    ProxyGoneError,
    ask,
    fault_proxy,
)
from loadtests.chaos.network.wire import Effect
from loadtests.chaos.primitives.process_refs import ProcessRef

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator

    from loadtests.chaos.site import FaultProxy


@pytest.fixture
def echoed() -> Generator[TcpServer]:
    with TcpServer(echo) as server:
        yield server


@pytest.fixture
def proxy(echoed: TcpServer) -> Generator[FaultProxy]:
    with fault_proxy(grpc=echoed.address, http=echoed.address, seed=7) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Generator[socket.socket]:
    with connect(proxy.grpc) as connection:
        yield connection


def set_effect(proxy: FaultProxy, *, of: str = "tw1", **effect: object) -> None:
    record = Effect(**effect).to_record()
    ask(proxy.control, {"do": "set", "token": of, "effect": record})


def clear(proxy: FaultProxy, of: str = "tw1") -> None:
    ask(proxy.control, {"do": "clear", "token": of})


def round_trip(connection: socket.socket, data: bytes = b"x" * 100) -> float:
    started = time.perf_counter()
    connection.sendall(data)
    assert receive(connection, len(data)) == data
    return time.perf_counter() - started


def test_neutral_every_byte_arrives_and_the_end_after_them(proxy, client):
    sent = bytes(range(256)) * (1 << 15)
    threading.Thread(
        target=lambda: (client.sendall(sent), client.shutdown(1)), daemon=True
    ).start()
    assert receive(client, len(sent)) == sent
    assert client.recv(1) == b""


def test_in_a_partition_nothing_arrives_and_afterwards_all_of_it(proxy, client):
    assert round_trip(client) < 20
    set_effect(proxy, partitioned=True)
    client.sendall(b"during")
    client.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.recv(1)
    with connect(proxy.grpc, 0.5) as newcomer:
        newcomer.sendall(b"new")
        with pytest.raises(TimeoutError):
            newcomer.recv(1)
        clear(proxy)
        for connection, sent in ((client, b"during"), (newcomer, b"new")):
            connection.settimeout(20)
            assert receive(connection, len(sent)) == sent


def test_a_reset_reaches_both_ends():
    ended = threading.Event()

    def serve(connection):
        connection.sendall(b"hello")
        with contextlib.suppress(ConnectionResetError):
            connection.recv(10)
            return
        ended.set()

    with (
        TcpServer(serve) as server,
        fault_proxy(grpc=server.address, http=server.address) as proxy,
        connect(proxy.grpc) as connection,
    ):
        assert receive(connection, 5) == b"hello"
        set_effect(proxy, reset_ratio=1.0)
        connection.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        assert ended.wait(patience())


def test_a_server_that_is_gone_is_a_reset_for_the_client(echoed, proxy):
    echoed.close()

    def ask() -> None:
        with connect(proxy.grpc) as connection:
            connection.sendall(b"x")
            connection.recv(1)

    # It may come before the client has seen its connection made.
    with pytest.raises(ConnectionResetError):
        ask()


def test_a_reader_that_stops_costs_bounded_memory():
    stop = threading.Event()
    sent = 0

    def never_read(_connection):
        stop.wait(60)

    with (
        TcpServer(never_read) as server,
        fault_proxy(grpc=server.address, http=server.address) as proxy,
        contextlib.ExitStack() as connections,
    ):
        before = resident_bytes(proxy.pid)
        set_effect(proxy, delay_seconds=0.01)
        for _ in range(4):
            connection = connections.enter_context(connect(proxy.grpc, 0.3))
            with contextlib.suppress(TimeoutError):
                while True:
                    sent += connection.send(bytes(1 << 20))
        grown = resident_bytes(proxy.pid) - before
        # Each took a few megabytes into the kernel's buffers and the proxy's, and no more.
        assert grown < 4 * 8 * (1 << 20)
        stop.set()
    assert sent


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"do": "dance"}, "want set, clear or state"),
        ({"do": "set", "token": "a", "effect": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_what_it_cannot_do_it_says(proxy, command, said):
    with pytest.raises(ProxyFailedError, match=said):
        ask(proxy.control, command)
    assert ask(proxy.control, {"do": "state"}) == {}


def test_nobody_there_is_told_apart_from_a_refusal(tmp_path: Path):
    with pytest.raises(ProxyGoneError, match="no fault proxy"):
        ask(tmp_path / "none", {"do": "state"})


OWNER = """
import sys, time
from loadtests.chaos.network.proxy_client import fault_proxy
with fault_proxy(grpc=sys.argv[1], http=sys.argv[1]) as proxy:
    print(proxy.pid, proxy.control, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_dies_with_its_owner_and_takes_its_folder_along(echoed, number):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, echoed.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        try:
            pid, path = owner.stdout.readline().split()
            proxy = ProcessRef.of(int(pid))
            assert proxy is not None
            assert proxy.alive
        finally:
            owner.send_signal(number)
            owner.wait(patience())
    assert proxy.wait_until(None, patience())
    wait_until(lambda: not Path(path).parent.exists())
