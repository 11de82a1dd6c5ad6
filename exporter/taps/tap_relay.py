"""Relays an admitted TCP connection to a server on a Unix socket, byte for byte.

grpc's server accepts its own connections and sets no limit on their number. So it listens
on an abstract Unix socket, and TCP connections reach it through the same entrance as
those of every other listener. At most `_BUFFER_BYTES` wait in each direction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from exporter.network.admission import Visitor

    Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]

_BUFFER_BYTES: Final = 256 << 10


class _End(asyncio.Protocol):
    """One end of a relay: what it receives is written to the other end."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold little, and read nothing before the other end is there."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self.transport = transport
        transport.set_write_buffer_limits(_BUFFER_BYTES)
        if self.other is None or self.other.transport is None:
            transport.pause_reading()

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

    def __init__(self, visitor: Visitor, connect: Connect) -> None:
        super().__init__(self)
        self._loop = asyncio.get_running_loop()
        self._visitor = visitor
        self._connect = connect
        self._active_at = self._loop.time()
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server behind."""
        super().connection_made(transport)
        self._visitor.end = transport.abort  # type: ignore[attr-defined]
        self._visitor.idle_since = lambda: self._active_at
        self._joining = self._loop.create_task(self._join())

    def active(self) -> None:
        """Something went through: the connection is not idle."""
        self._active_at = self._loop.time()

    def end(self, _: Exception | None) -> None:
        """End both sides and give the place back; what is written is still flushed."""
        self._visitor.leave()
        if self._joining is not None:
            self._joining.cancel()
        for side in (self, self.other):
            if side is not None and side.transport is not None:
                side.transport.close()

    async def _join(self) -> None:
        behind = _End(self)
        behind.other = self
        try:
            await self._connect(lambda: behind)
        except OSError:
            # The server is being replaced or has ended: the client connects again.
            self.end(None)
            return
        self.other = behind
        if self.transport is not None:
            self.transport.resume_reading()
