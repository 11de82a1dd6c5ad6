"""A loopback port with a thread for each connection, which can go away and come back."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import weakref
from typing import TYPE_CHECKING, Final

from exporter.network.held_port import LOOPBACK, hold_port

if TYPE_CHECKING:
    from collections.abc import Callable

JOIN_SECONDS: Final = 10.0
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


def reset_on_close(connection: socket.socket) -> None:
    """Make close() send a TCP reset rather than a regular end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


class Listener:
    """Accepts connections on a free port and calls `serve` for each in its own thread.

    `serve` may raise OSError when its client leaves. Above `max_connections` at once a
    new connection is closed unanswered.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], None],
        *,
        name: str,
        max_connections: int,
    ) -> None:
        self._serve = serve
        self._name = name
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listening: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        holder = hold_port()
        weakref.finalize(self, holder.close)
        self.port: int = holder.getsockname()[1]
        self.open()

    @property
    def address(self) -> str:
        """Host and port, `127.0.0.1:PORT`."""
        return f"{LOOPBACK}:{self.port}"

    def open(self) -> None:
        """Listen, always on the same port."""
        listening = socket.create_server((LOOPBACK, self.port), backlog=128)
        self._listening = listening
        self._accepting = threading.Thread(
            target=self._accept,
            args=(listening,),
            name=f"{self._name}-accept",
            daemon=True,
        )
        self._accepting.start()

    def close(self) -> None:
        """Refuse connections, end those there are, and wait for their threads."""
        if self._listening is None or self._accepting is None:
            return
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join(JOIN_SECONDS)
        self._listening = None
        with self._lock:
            threads = list(self._connections.values())
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(JOIN_SECONDS)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return  # close() was called.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(
                target=self._run, args=(connection,), name=self._name, daemon=True
            )
            with self._lock:
                full = len(self._connections) >= self._max_connections
                if not full:
                    self._connections[connection] = thread
            if full:
                connection.close()
            else:
                thread.start()

    def _run(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                self._serve(connection)
        finally:
            with self._lock:
                del self._connections[connection]
            connection.close()
