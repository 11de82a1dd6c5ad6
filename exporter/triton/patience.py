"""urllib3 with a bound on a whole answer: the time it may take and the bytes it may have.

urllib3's own timeout starts anew with every read from the socket, and only a body has
bounds there: a server that drips its headers, its body or its trailers would hold a
thread for ever.
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


class _TimedReader(io.RawIOBase):
    """Reads from a socket until the deadline or the bound, whichever comes first."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
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
        return size

    def close(self) -> None:
        self._holder.close()
        super().close()


class _TimedSocket:
    """The part of a socket that a response uses."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._reader = _TimedReader(sock, deadline)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


def _timed_response(
    sock: socket.socket, *, deadline: float, method: str | None = None
) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(
        cast("socket.socket", _TimedSocket(sock, deadline)), method=method
    )


class _Connection(HTTPConnection):
    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override] # urllib3's
        # By now urllib3 has set what connecting has left of the total.
        deadline = time.monotonic() + float(self.timeout or 0)
        self.response_class = functools.partial(  # type: ignore[assignment] # called
            _timed_response, deadline=deadline
        )
        return super().getresponse()


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class BoundedPool(urllib3.HTTPConnectionPool):
    """Connections to one port; its name is a part of what urllib3 says went wrong."""

    # Declared there as a protocol that its own classes do not meet to the letter.
    ConnectionCls = cast("Any", _Connection)


class BoundedTlsPool(urllib3.HTTPSConnectionPool):
    """The same over TLS."""

    ConnectionCls = cast("Any", _TlsConnection)


POOL_CLASSES: Final[dict[str, type[urllib3.HTTPConnectionPool]]] = {
    "http": BoundedPool,
    "https": BoundedTlsPool,
}
"""Value of `pool_classes_by_scheme` for any urllib3.PoolManager."""


def pool_of(connections: int, tls: ssl.SSLContext | None) -> urllib3.PoolManager:
    """Connections to one server, nothing tried twice; timeouts must be given."""
    manager = urllib3.PoolManager(
        num_pools=1, maxsize=connections, retries=False, ssl_context=tls
    )
    manager.pool_classes_by_scheme = POOL_CLASSES
    return manager
