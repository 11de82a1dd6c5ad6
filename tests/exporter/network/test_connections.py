"""Memory held by broken connections, and the time that an unread answer may take."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import weakref

import pytest
from surfaces import serving
from waiting import patience

from exporter import catalogue
from exporter.network import connections as network_connections
from exporter.network.connections import UNREAD_SECONDS, BoundedProtocol
from exporter.samples import Sample
from exporter.web import scrape_pages

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes `close` send a reset."""


def connections() -> weakref.WeakSet[BoundedProtocol]:
    gc.collect()
    return weakref.WeakSet(
        each for each in gc.get_objects() if isinstance(each, BoundedProtocol)
    )


@pytest.mark.parametrize("reads", [True, False], ids=["answered", "while asked"])
async def test_nothing_stays_of_a_connection_that_is_reset(reads):
    async with serving(start=False) as served:
        before = len(connections())
        for _ in range(20):
            client = socket.create_connection(
                ("127.0.0.1", served.port), timeout=patience(5)
            )
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            if reads:
                assert await asyncio.to_thread(client.recv, 12) == b"HTTP/1.1 200"
            client.close()
        for _ in range(50):
            await asyncio.sleep(0.1)
            if len(connections()) <= before:
                return
        assert len(connections()) == before


REQUEST = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"
HEALTHY = b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n"
# More than the kernel buffers for a connection.
LARGE = [
    Sample(catalogue.MODEL_SERVING, 1, (f"{number}{'m' * 250}", "1"))
    for number in range(40_000)
]


@contextlib.asynccontextmanager
async def asked(monkeypatch, *, unread_seconds, asks=REQUEST):
    """A client of a page that is too large for it; it has read nothing yet."""
    monkeypatch.setattr(network_connections, "UNREAD_SECONDS", unread_seconds)
    monkeypatch.setattr(scrape_pages, "MAX_UNREAD_BYTES", 0)
    states = []
    async with serving(start=False) as served:
        before = set(connections())

        def samples():
            asking = set(connections()) - before
            states.extend((one.waits, one._idle_since()) for one in asking)
            return LARGE

        monkeypatch.setattr(served.sidecar, "samples", samples)
        with socket.socket() as client:
            # Before it connects, or the kernel takes several MB.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", served.port))
            client.setblocking(False)
            client.sendall(asks)
            [connection] = await until(lambda: set(connections()) - before)
            yield client, connection, states


async def until(condition):
    """The first value of `condition` that holds."""
    for _ in range(1200):
        if found := condition():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it never came about")


async def read(client, size):
    loop, received = asyncio.get_running_loop(), b""
    async with asyncio.timeout(patience()):
        while len(received) < size:
            try:
                part = await loop.sock_recv(client, 1 << 20)
            except ConnectionResetError:
                break
            if not part:
                break
            received += part
    return received


def is_open(connection):
    transport = connection.transport
    return transport is not None and not transport.is_closing()


async def test_a_connection_waits_while_its_answer_is_unread_and_not_before(
    monkeypatch,
):
    async with asked(monkeypatch, unread_seconds=60.0) as (client, connection, states):
        await until(lambda: states)
        assert states == [(False, None)]
        since = await until(connection._visitor.idle_since)
        assert connection.waits
        assert since <= asyncio.get_running_loop().time()
        # It is read again, and the answer is complete: it waits for the next request.
        head = (await read(client, 1)).partition(b"\r\n\r\n")[0]
        size = int(head.lower().partition(b"content-length: ")[2].split()[0])
        await read(client, size - (1 << 20))
        await until(lambda: connection.cycle.response_complete)
        assert connection.waits


@pytest.mark.parametrize("asks", [REQUEST, REQUEST * 2], ids=["one", "one ahead"])
async def test_a_stalled_connection_is_closed_in_time(monkeypatch, asks):
    async with asked(monkeypatch, unread_seconds=1.0, asks=asks) as (client, found, _):
        await until(lambda: found.waits)
        client.sendall(REQUEST)
        await until(lambda: not is_open(found))
        # Written after that, an answer would be an error in the log, over TLS.
        assert found.cycle.disconnected
        assert found._answered.disconnected
        assert len(await read(client, 1 << 30)) < len(LARGE) * 250


@contextlib.asynccontextmanager
async def client_of(served):
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", served.port))
        yield client


@pytest.mark.parametrize(
    ("limit", "answered", "sent"),
    [
        *[("HEAD_SECONDS", answered, HEALTHY[:-2]) for answered in (0, 2)],
        ("HEAD_SECONDS", 0, b""),
        ("IDLE_SECONDS", 1, b""),
    ],
)
async def test_every_wait_for_a_client_has_its_time(monkeypatch, limit, answered, sent):
    monkeypatch.setattr(network_connections, limit, 0.5)
    async with serving(start=False) as served, client_of(served) as client:
        for _ in range(answered):
            client.sendall(HEALTHY)
            assert (await read(client, 12)).startswith(b"HTTP/1.1 200")
            await drained(client)
        client.sendall(sent)
        async with asyncio.timeout(UNREAD_SECONDS - 10):
            assert await read(client, 1) == b""


@pytest.mark.parametrize(("more", "status"), [(0, b"200"), (1, b"400")])
async def test_a_head_has_64_kib_with_200_bytes_for_each_of_its_lines(more, status):
    text = len(b"/-/healthy" + b"host" + b"x" + b"fill")
    fill = b"fill: " + b"x" * ((64 << 10) - 3 * 200 - text + more) + b"\r\n\r\n"
    async with serving(start=False) as served, client_of(served) as client:
        await asyncio.get_running_loop().sock_sendall(client, HEALTHY[:-2] + fill)
        assert (await read(client, 12)).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(("ahead", "is_answered"), [(8, True), (9, False)])
async def test_eight_requests_may_be_sent_ahead_of_an_answer(ahead, is_answered):
    async with serving(start=False) as served, client_of(served) as client:
        client.sendall(HEALTHY)
        answer = b""
        while not answer.endswith(b"healthy\n"):
            answer += await read(client, 1)
        client.sendall(HEALTHY * (1 + ahead))
        expected = is_answered * (1 + ahead) * len(answer)
        assert len(await read(client, expected or 1)) == expected


async def test_one_that_is_read_again_is_not_closed(monkeypatch):
    async with asked(monkeypatch, unread_seconds=2.0) as (client, connection, _):
        await until(lambda: connection.waits)
        received = len(await read(client, 1))
        while not connection.cycle.response_complete:
            received += len(await read(client, 1))
        rest = await drained(client)
        await asyncio.sleep(3.0)
        assert is_open(connection), received + rest
        client.sendall(HEALTHY)
        assert (await read(client, 12)).startswith(b"HTTP/1.1 200")


async def drained(client):
    """Read what has come, until nothing has for a while."""
    loop, size = asyncio.get_running_loop(), 0
    while True:
        try:
            async with asyncio.timeout(0.5):
                size += len(await loop.sock_recv(client, 1 << 20))
        except TimeoutError:
            return size
