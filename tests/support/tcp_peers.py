"""The other side of a TCP connection, as a test wants it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class TcpServer:
    """A server on a free port of loopback: `serve(connection)` in a thread for each."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nobody listens there any more, and all connections end."""
        for one in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(
                    target=self._served, args=(connection,), daemon=True
                ).start()

    def _served(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._serve(connection)


def endless(first: bytes, more: bytes = b"", every_seconds: float = 0.0) -> TcpServer:
    """A server that answers with `first`, then `more` over and over."""

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(65_536)
            connection.sendall(first)
            while more:
                time.sleep(every_seconds)
                connection.sendall(more)

    return TcpServer(serve)


def echo(connection: socket.socket) -> None:
    """Send back what comes, and the end after it."""
    with connection:
        while data := connection.recv(65_536):
            connection.sendall(data)


def connect(address: str, timeout_seconds: float = 20.0) -> socket.socket:
    """A connection to host:port whose every step has this deadline."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout_seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or what came before the end."""
    received = bytearray()
    while len(received) < size and (data := connection.recv(size - len(received))):
        received += data
    return bytes(received)
