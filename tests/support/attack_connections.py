"""Connections and requests of a stranger, of which attacks are made."""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from web_files import trusting_authority

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator, Iterable

    Attempts = Generator[bool, None, None]

Address = tuple[str | int, ...]
"""Host and port; for TLS the file of the authority, and certificate and key if wanted."""
TIMEOUT_SECONDS: Final = 5.0


def connected(address: Address, source: str = "") -> socket.socket:
    """A connection that says nothing; `source` is the address that it comes from."""
    host, port, *files = address
    plain = socket.create_connection((host, port), TIMEOUT_SECONDS, (source, 0))
    return spoken(plain, str(host), *map(str, files))


def spoken(plain: socket.socket, host: str, *files: str) -> socket.socket:
    """The connection after a TLS handshake, where there are files for one."""
    return _context(*files).wrap_socket(plain, server_hostname=host) if files else plain


@functools.cache
def _context(authority: str, *pair: str) -> ssl.SSLContext:
    context = trusting_authority(authority or None)
    if pair:
        context.load_cert_chain(*pair)
    return context


def saying(address: Address, text: bytes, source: str = "") -> socket.socket:
    """A connection on which that was sent, and no answer read."""
    connection = connected(address, source)
    connection.sendall(text)
    return connection


def elsewhere(address: Address) -> str:
    """Another address than that of honest clients, where the machine has one."""
    return "127.0.0.2" if str(address[0]).startswith("127.") else ""


def holding(connect: Callable[[], socket.socket], most: int) -> Attempts:
    """One more connection at each attempt, of which the latest are kept."""
    kept: deque[socket.socket] = deque()
    try:
        while True:
            with contextlib.suppress(OSError):
                kept.append(connect())
            if len(kept) > most:
                kept.popleft().close()
            yield False
    finally:
        for connection in kept:
            connection.close()


def sent(
    address: Address,
    path: str,
    body: bytes,
    headers: dict[str, str],
    timeout_seconds: float = TIMEOUT_SECONDS,
    source: str = "",
) -> int:
    """The status of the answer to one POST; 0 where there is none."""
    connection = http.client.HTTPConnection(str(address[0]), timeout=timeout_seconds)
    with contextlib.closing(connection):
        try:
            connection.sock = connected(address, source)
            connection.sock.settimeout(timeout_seconds)
            # Refused on its head, a request may not be let finish.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", path, body, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0


def sending(
    address: Address | None,
    requests: Iterable[tuple[str, bytes, dict[str, str]]],
    wanted: int = 0,
    source: str = "",
) -> Attempts:
    """POST each of them; `wanted` is the status that none may be answered with."""
    assert address is not None
    for path, body, headers in requests:
        status = sent(address, path, body, headers, source=source)
        yield status == wanted != 0


def asked(address: Address, path: bytes) -> int:
    """The status of the answer to a GET of anything; 0 where there is none."""
    with contextlib.suppress(OSError), connected(address) as connection:
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
        status = connection.recv(32).split(b" ")
        return int(status[1]) if status[0] == b"HTTP/1.1" else 0
    return 0
