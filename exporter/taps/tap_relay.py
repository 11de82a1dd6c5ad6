"""Relays an admitted TCP connection to a server on a Unix socket, byte for byte.

grpc's server accepts its own connections and sets no limit on their number. So it listens
on an abstract Unix socket, and TCP connections reach it through the same entrance as
those of every other listener, once they send something. At most `_BUFFER_BYTES` wait in
each direction.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Final

from exporter.network.connections import HEAD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from exporter.network.admission import Visitor

    Path = Callable[[str], Awaitable[str]]

_BUFFER_BYTES: Final = 256 << 10
_PREFIX: Final = "tritonwatch-"


def sender_of(peer: str) -> str:
    """The address of the sender of a call, of which gRPC gives this peer; "" if unknown.

    A relay's socket is called after it.
    """
    _, _, name = peer.partition(_PREFIX)
    try:
        return bytes.fromhex(name.rpartition("-")[2]).decode()
    except ValueError:
        return ""


def _named_after(address: str) -> str:
    return f"\0{_PREFIX}{secrets.token_hex(8)}-{address.encode().hex()}"


class _End(asyncio.Protocol):
    """One end of a relay: data it receives are written to the other end."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold little."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self.transport = transport
        transport.set_write_buffer_limits(_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self._relay.active()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading at the other end."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on at the other end."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End both."""
        self._relay.end(exc)


class Relay(_End):
    """The TCP end of one connection, and the Unix end behind it."""

    def __init__(self, visitor: Visitor, path: Path) -> None:
        super().__init__(self)
        self._loop = asyncio.get_running_loop()
        self._visitor = visitor
        self._path = path
        self._active_at = self._loop.time()
        self._joining: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's data: in HTTP/2 the client starts."""
        super().connection_made(transport)
        abort = transport.abort  # type: ignore[attr-defined]
        self._silence = self._loop.call_later(HEAD_SECONDS, abort)
        self._visitor.end = abort
        self._visitor.idle_since = lambda: self._active_at

    def data_received(self, data: bytes) -> None:
        """Connect to the server behind at the first bytes, and pass on."""
        if self._joining is None:
            assert self.transport is not None  # noqa: S101 - it is made
            self._break_silence()
            self.transport.pause_reading()
            self._joining = self._loop.create_task(self._join(data))
        else:
            super().data_received(data)

    def active(self) -> None:
        """Record traffic: the connection is not idle."""
        self._active_at = self._loop.time()

    def _break_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()

    def end(self, _: Exception | None) -> None:
        """Close both sides and release the place; written data are still flushed."""
        self._visitor.leave()
        self._break_silence()
        if self._joining is not None:
            self._joining.cancel()
        for side in (self, self.other):
            if side is not None and side.transport is not None:
                side.transport.close()

    async def _join(self, data: bytes) -> None:
        behind = _End(self)
        behind.other = self
        try:
            end = await self._connected()
            await self._loop.create_unix_connection(lambda: behind, sock=end)
        except OSError:
            # The server is being replaced or has ended: the client connects again.
            self.end(None)
            return
        self.other = behind
        super().data_received(data)
        if self.transport is not None:
            self.transport.resume_reading()

    async def _connected(self) -> socket.socket:
        path = await self._path(self._visitor.address)
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            end.bind(_named_after(self._visitor.address))
            await self._loop.sock_connect(end, path)
        except BaseException:
            end.close()
            raise
        return end
