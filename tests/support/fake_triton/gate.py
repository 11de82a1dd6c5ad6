"""The way to the gRPC port: passes bytes on, and spoils them when told to.

grpcio offers no way to send half a message or bytes that are not HTTP/2. So clients
talk to a gate in front of the real gRPC server, which reads just enough of HTTP/2 (the
frame header, RFC 9113 section 4.1) to cut an answer in the middle of a DATA frame.
"""

from __future__ import annotations

import selectors
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.network.held_port import LOOPBACK
from fake_triton.behaviours import GARBAGE, Dripping, Dropped, Garbage, HalfAnswer
from fake_triton.calls import CONNECTIONS
from fake_triton.listener import Listener, reset_on_close

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from fake_triton.behaviours import Delivery

CHUNK_BYTES: Final = 65_536
FRAME_HEADER_BYTES: Final = 9
DATA: Final = 0
HEADERS: Final = 1


@dataclass(slots=True)
class _Link:
    """One client's connection; `delivery` is what to do to the next answer on it."""

    client: socket.socket
    delivery: Delivery | None = None
    unparsed: bytes = b""


class _CutError(OSError):
    """The gate ended this connection on purpose."""


class Gate:
    """Listens for gRPC clients and connects each to the server at `server_port`."""

    def __init__(self, server_port: int, *, stopping: threading.Event) -> None:
        self._server_port = server_port
        self._stopping = stopping
        self._links: dict[int, _Link] = {}
        self.listener = Listener(
            self._serve, name="fake-triton-grpc", max_connections=CONNECTIONS
        )

    def spoil(self, peer: str, delivery: Delivery) -> None:
        """Deliver the next answer to `peer` so; `peer` as gRPC's context.peer() says it."""
        port = int(peer.rpartition(":")[2])
        link = self._links.get(port)
        if link is not None:
            link.delivery = delivery

    def _serve(self, client: socket.socket) -> None:
        with socket.create_connection((LOOPBACK, self._server_port)) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            port = server.getsockname()[1]
            link = self._links[port] = _Link(client)
            try:
                self._pass_on(link, server)
            finally:
                del self._links[port]

    def _pass_on(self, link: _Link, server: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(link.client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    data = source.recv(CHUNK_BYTES)  # type: ignore[union-attr]
                    if not data:
                        return
                    if source is server:
                        self._downstream(link, data)
                    else:
                        server.sendall(data)

    def _downstream(self, link: _Link, data: bytes) -> None:
        for frame in _frames(link, data):
            if link.delivery is None:
                link.client.sendall(frame)
            else:
                self._spoilt(link, link.delivery, frame)

    def _spoilt(self, link: _Link, delivery: Delivery, frame: bytes) -> None:
        kind = frame[3]
        match delivery:
            case Garbage() if kind in (DATA, HEADERS):
                link.client.sendall(GARBAGE)
                raise _CutError
            case Dropped() if kind in (DATA, HEADERS):
                reset_on_close(link.client)
                raise _CutError
            case HalfAnswer() if kind == DATA:
                kept = (len(frame) - FRAME_HEADER_BYTES) // 2
                link.client.sendall(frame[: FRAME_HEADER_BYTES + kept])
                link.client.shutdown(socket.SHUT_WR)
                raise _CutError
            case Dripping(interval_seconds=interval) if kind == DATA:
                link.delivery = None
                self._drip(link.client, frame, interval)
            case _:
                link.client.sendall(frame)

    def _drip(self, client: socket.socket, frame: bytes, interval: float) -> None:
        for byte in frame:
            client.sendall(bytes((byte,)))
            if self._stopping.wait(interval):
                raise _CutError


def _frames(link: _Link, data: bytes) -> Iterator[bytes]:
    """Whole HTTP/2 frames; the rest waits for more data."""
    link.unparsed += data
    while len(link.unparsed) >= FRAME_HEADER_BYTES:
        end = FRAME_HEADER_BYTES + int.from_bytes(link.unparsed[:3], "big")
        if len(link.unparsed) < end:
            return
        frame, link.unparsed = link.unparsed[:end], link.unparsed[end:]
        yield frame
