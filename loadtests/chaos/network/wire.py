"""A wire of the fault proxy: connections to one port, and effects on their bytes.

Memory is bounded: of a direction of a connection as much is held as `HELD_BYTES` and one
read more, of all together `ALL_HELD_BYTES` and one read for each; then reading stops,
as with a full TCP window.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from loadtests.chaos.network.effect import DIRECTIONS, Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.network.effect import Direction, Effect

HELD_BYTES: Final = 1 << 20
ALL_HELD_BYTES: Final = 64 << 20
MAX_CONNECTIONS: Final = 1024
_CONNECT_SECONDS: Final = 5.0
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class Wire:
    """All connections to one port of the server."""

    def __init__(self, host: str, port: int, *, seed: str) -> None:
        rng = random.Random(seed)  # noqa: S311 - a fault is drawn, not a secret
        self.links: dict[Direction, Link] = {each: Link(rng) for each in DIRECTIONS}
        self.held_bytes = 0
        self.resets = 0
        self._upstream = host, port
        self._ends: set[End] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._whole.set()

    @property
    def connections(self) -> int:
        """Number of clients' connections."""
        return sum(end.direction == "requests" for end in self._ends)

    def set_effects(self, effects: Sequence[Effect]) -> None:
        """Apply all of these effects from now on; send data that no longer has to wait."""
        for direction, link in self.links.items():
            link.set_effects(effects, direction)
        if any(link.effect.partitioned for link in self.links.values()):
            self._whole.clear()
        else:
            self._whole.set()
        for end in tuple(self._ends):
            end.effects_changed()

    def accept(self) -> End:
        """Return the end for a new client."""
        return End(self, "requests")

    def opened(self, end: End) -> None:
        """Handle a new connection; connect to the server for one of a client."""
        self._ends.add(end)
        if end.direction == "answers":
            return
        if self.connections > MAX_CONNECTIONS:
            end.abort()
            return
        task = asyncio.get_running_loop().create_task(self._connect(end))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def closed(self, end: End) -> None:
        """Remove a closed connection."""
        self._ends.discard(end)

    async def _connect(self, client: End) -> None:
        loop = asyncio.get_running_loop()
        await self._whole.wait()
        # A real network delays the handshake too.
        await asyncio.sleep(self.links["requests"].latency())
        server = End(self, "answers")
        server.other, client.other = client, server
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(lambda: server, *self._upstream)
        except (OSError, TimeoutError):
            client.abort()
            return
        if client.gone:
            server.abort()
        else:
            client.pace(other_is_full=False)


class End(asyncio.Protocol):
    """One TCP connection, and the data in transit from it to the `other`."""

    def __init__(self, wire: Wire, direction: Direction) -> None:
        self.direction: Direction = direction
        self.other: End | None = None
        self.gone = False
        self._wire = wire
        self._link = wire.links[direction]
        self._transport: asyncio.Transport | None = None
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._latest = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._other_is_full = False
        self._paused = False
        self._sent_last = False

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read nothing of a client before there is a server."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport
        if self.direction == "requests":
            self._paused = True
            transport.pause_reading()
        self._wire.opened(self)

    def data_received(self, data: bytes) -> None:
        """Forward the data at once, or when the link allows it."""
        if self._link.neutral and not self._queue:
            self._send(data)
        elif self._link.resets():
            self._wire.resets += 1
            self.abort()
        else:
            now = asyncio.get_running_loop().time()
            for piece in self._link.pieces(data):
                self._enqueue(piece, self._link.arrival(len(piece), now))

    def eof_received(self) -> bool:
        """Forward the end of this direction after the data in transit."""
        if self._queue or self._link.effect.partitioned:
            self._enqueue(b"", asyncio.get_running_loop().time())
        else:
            self._send(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Reset the other end too, unless it is closing already."""
        self.gone = True
        self._drop()
        self._wire.closed(self)
        if self.other is not None:
            self.other.abort()

    def pause_writing(self) -> None:
        """Stop the other end: this connection's buffer is full."""
        if self.other is not None:
            self.other.pace(other_is_full=True)

    def resume_writing(self) -> None:
        """Resume the other end."""
        if self.other is not None:
            self.other.pace(other_is_full=False)

    # Called by the wire and the other end.

    def effects_changed(self) -> None:
        """Send data that is no longer delayed."""
        if self._queue:
            self._flush()

    def abort(self) -> None:
        """End both connections by a reset."""
        transport = self._transport
        if self.gone or transport is None or transport.is_closing():
            return
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._drop()
        transport.abort()
        if self.other is not None:
            self.other.abort()

    def finish(self) -> None:
        """Close, since both directions have ended."""
        if self._transport is not None:
            self._transport.close()

    def pace(self, *, other_is_full: bool) -> None:
        """Read only while there is room for it."""
        self._other_is_full = other_is_full
        self._pace()

    # Data in transit.

    def _enqueue(self, piece: bytes, due: float) -> None:
        self._latest = max(due, self._latest)
        self._queue.append((self._latest, piece))
        self._queued_bytes += len(piece)
        self._wire.held_bytes += len(piece)
        self._pace()
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._queue and not self._link.effect.partitioned:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._queue[0][0], self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = asyncio.get_running_loop().time()
        while self._queue and not self._link.effect.partitioned:
            due, piece = self._queue[0]
            if due > now and not self._link.neutral:
                break
            self._queue.popleft()
            self._queued_bytes -= len(piece)
            self._wire.held_bytes -= len(piece)
            self._send(piece)
        self._pace()
        self._schedule()

    def _send(self, data: bytes) -> None:
        """Send data to the other end; empty data are the end of the stream."""
        other = self.other
        if other is None or other._transport is None or other._transport.is_closing():  # noqa: SLF001 - of the same class
            return
        if data:
            other._transport.write(data)  # noqa: SLF001
            return
        self._sent_last = True
        if other._sent_last:  # noqa: SLF001
            other.finish()
            self.finish()
        else:
            other._transport.write_eof()  # noqa: SLF001

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wire.held_bytes -= self._queued_bytes
        self._queued_bytes = 0
        self._queue.clear()

    def _pace(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limit = HELD_BYTES // 2 if self._paused else HELD_BYTES
        crowded = self._wire.held_bytes > ALL_HELD_BYTES and self._queued_bytes > 0
        full = self._other_is_full or crowded or self._queued_bytes > limit
        if full and not self._paused:
            transport.pause_reading()
        elif self._paused and not full:
            transport.resume_reading()
        self._paused = full
