"""urllib3 with bounds on a whole answer and on the age of an idle connection.

urllib3's own timeout starts anew with every read from the socket, and only a body has
bounds there: a server that drips its headers, its body or its trailers would hold a
thread for ever.

A server closes idle connections after a time of its own, and a request that is on its
way at that moment gets no answer although the server is well. So a connection is only
used again within `MAX_IDLE_SECONDS`.
"""

from __future__ import annotations

import functools
import http.client
import io
import time
from typing import TYPE_CHECKING, Any, Final, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    import socket
    import ssl

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
# Bytes around a body: headers, lengths of chunks, trailers.
_MAX_ANSWER_BYTES: Final = 2 * MAX_BODY_BYTES
MAX_IDLE_SECONDS: Final = 1.0
"""Shorter than servers keep idle connections: gunicorn 2 s, uvicorn and Node 5 s."""


class _TimedReader(io.RawIOBase):
    """Reads from a socket until the deadline or the bound, whichever comes first."""

    def __init__(
        self, sock: socket.socket, deadline: float, connection: _Connection
    ) -> None:
        self._sock = sock
        self._deadline = deadline
        self._connection = connection
        self._left = _MAX_ANSWER_BYTES
        # Keeps the socket open until this is closed, as a response expects.
        self._holder = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the answer did not end in time")
        if self._left <= 0:
            raise ConnectionError(f"the answer is larger than {_MAX_ANSWER_BYTES} B")
        self._sock.settimeout(remaining)
        size = self._sock.recv_into(buffer)
        self._left -= size
        if size:
            self._connection.heard_at = time.monotonic()
        return size

    def close(self) -> None:
        self._holder.close()
        super().close()


class _TimedSocket:
    """The part of a socket that a response uses."""

    def __init__(
        self, sock: socket.socket, deadline: float, connection: _Connection
    ) -> None:
        self._reader = _TimedReader(sock, deadline, connection)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


def _timed_response(
    sock: socket.socket,
    *,
    deadline: float,
    connection: _Connection,
    method: str | None = None,
) -> http.client.HTTPResponse:
    timed = _TimedSocket(sock, deadline, connection)
    return http.client.HTTPResponse(cast("socket.socket", timed), method=method)


class _Connection(HTTPConnection):
    heard_at: float | None = None
    """When its latest byte came, in monotonic seconds; None before the first."""
    sent_at: float = 0.0
    """When its latest request was sent, by `time.perf_counter`."""

    def connect(self) -> None:
        self.heard_at = None
        super().connect()

    @property
    def is_connected(self) -> bool:
        if self.heard_at is None:
            return super().is_connected
        is_fresh = time.monotonic() - self.heard_at <= MAX_IDLE_SECONDS
        return is_fresh and super().is_connected

    def request(self, *args: Any, **kwargs: Any) -> None:
        self.sent_at = time.perf_counter()
        super().request(*args, **kwargs)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override] # urllib3's
        # By now urllib3 has set what connecting has left of the total.
        deadline = time.monotonic() + float(self.timeout or 0)
        self.response_class = functools.partial(  # type: ignore[assignment] # called
            _timed_response, deadline=deadline, connection=self
        )
        return super().getresponse()


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _KeepingPool(urllib3.HTTPConnectionPool):
    """Connects before it sends, so that `sent_at` includes no connecting."""

    def _validate_conn(self, conn: Any) -> None:
        super()._validate_conn(conn)
        if conn.is_closed:
            conn.connect()


class BoundedPool(_KeepingPool):
    """Connections to one port; its name is a part of what urllib3 says went wrong."""

    # Declared there as a protocol that its own classes do not meet to the letter.
    ConnectionCls = cast("Any", _Connection)


class BoundedTlsPool(_KeepingPool, urllib3.HTTPSConnectionPool):
    """The same over TLS."""

    ConnectionCls = cast("Any", _TlsConnection)


POOL_CLASSES: Final[dict[str, type[urllib3.HTTPConnectionPool]]] = {
    "http": BoundedPool,
    "https": BoundedTlsPool,
}
"""Value of `pool_classes_by_scheme` for any urllib3.PoolManager."""


def pool_of(connections: int, tls: ssl.SSLContext | None) -> urllib3.PoolManager:
    """Connections to one server; total timeouts must be given."""
    manager = urllib3.PoolManager(
        num_pools=1, maxsize=connections, retries=False, ssl_context=tls
    )
    manager.pool_classes_by_scheme = POOL_CLASSES
    return manager


def sent_at(response: urllib3.BaseHTTPResponse) -> float:
    """When the request of an unread answer was sent, by `time.perf_counter`.

    The connection existed by then.
    """
    return cast("_Connection", response.connection).sent_at
