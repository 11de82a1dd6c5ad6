"""Relays an admitted TCP connection to a server on a Unix socket, byte for byte.

grpc's server accepts its own connections, and limits neither their number, nor the
answers that a client leaves unread, nor a header block's frames. So it listens on an
abstract Unix socket, and TCP connections reach it through the same entrance as those of
every other listener, once they send something. At most `_BUFFER_BYTES` wait in each
direction, and nothing is read from a client that does not read.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Final

from exporter.network.connections import HEAD_SECONDS
from exporter.taps.http2_frames import FrameReader, FramesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from exporter.network.admission import Entrance, Visitor

    Path = Callable[[str], Awaitable[str]]

_BUFFER_BYTES: Final = 256 << 10
_RECEIVE_BYTES: Final = 32 << 10
_FRAMES_PER_SECOND: Final = 20_000
"""Frames that are read from one address; a call of a mirror takes about ten."""
_FRAMES_AHEAD_SECONDS: Final = 0.1
_REST_SECONDS: Final = 1.0
"""Time for a client to read the rest once the server has closed the connection."""
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


def _named_after(sender: str) -> str:
    """Return a new name for the socket of a relay, from which `sender_of` has the sender."""
    return f"\0{_PREFIX}{secrets.token_hex(8)}-{sender.encode().hex()}"


class _End(asyncio.Protocol):
    """One end of a relay: data it receives are written to the other end."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self._unread_for: set[str] = set()
        """Reasons for which nothing is read here now."""

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

    def pause_reading(self, reason: str) -> None:
        """Stop reading here until no reason is left."""
        self._unread_for.add(reason)
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_reading(self, reason: str) -> None:
        """Read on, unless there is another reason not to."""
        self._unread_for.discard(reason)
        if self.transport is not None and not self._unread_for:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop reading at the other end."""
        if self.other is not None:
            self.other.pause_reading("other end is full")

    def resume_writing(self) -> None:
        """Read on at the other end."""
        if self.other is not None:
            self.other.resume_reading("other end is full")


class _ServerEnd(_End):
    """The Unix end, behind the TCP end."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End both."""
        super().connection_lost(exc)
        self._relay.server_lost()


class Relay(_End):
    """The TCP end of one connection, and the Unix end behind it."""

    def __init__(self, visitor: Visitor, entrance: Entrance, path: Path) -> None:
        super().__init__(self)
        self._entrance = entrance
        self._loop = asyncio.get_running_loop()
        self._visitor = visitor
        self._path = path
        self._active_at = self._loop.time()
        self._joining: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._frames = FrameReader()
        self._frames_until = 0.0
        """When as many frames as were read may have been sent, by `_FRAMES_PER_SECOND`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's data: in HTTP/2 the client starts."""
        super().connection_made(transport)
        # The kernel would hold megabytes, and an end behind them is not seen before them.
        # And many small frames at once would keep the event loop busy.
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES
        )
        self._visitor.end = self._abort
        self._visitor.idle_since = lambda: self._active_at
        self._set_timer(HEAD_SECONDS, self._abort)

    def data_received(self, data: bytes) -> None:
        """Connect to the server behind at the first bytes, and pass on."""
        if self._joining is None:
            self._set_timer(None)
        try:
            self._limit_frames(self._frames.read(data))
        except FramesError:
            self._abort()
            return
        if self._joining is None:
            self.pause_reading("no server yet")
            self._joining = self._loop.create_task(self._join(data))
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        """Read nothing at both ends: the server keeps answers that it cannot send."""
        super().pause_writing()
        self.pause_reading("answers are not read")

    def resume_writing(self) -> None:
        """Read on at both ends."""
        super().resume_writing()
        self.resume_reading("answers are not read")

    def connection_lost(self, exc: Exception | None) -> None:
        """End both: the server cancels the calls of a client that left."""
        super().connection_lost(exc)
        self._visitor.leave()
        self._set_timer(None)
        if self._joining is not None:
            self._joining.cancel()
        if self.other is not None and self.other.transport is not None:
            # What the server has not read may stay unread for ever.
            self.other.transport.abort()

    def active(self) -> None:
        """Record traffic: the connection is not idle."""
        self._active_at = self._loop.time()

    def server_lost(self) -> None:
        """End the connection when the client has read the rest, or in a moment."""
        if self.transport is not None:
            self.transport.close()
            self._set_timer(_REST_SECONDS, self._abort)

    def _limit_frames(self, frames: int) -> None:
        """Read no more for as long as this many frames may take."""
        now = self._loop.time()
        connections = self._entrance.held_by(self._visitor.address)
        seconds = frames * connections / _FRAMES_PER_SECOND
        self._frames_until = max(self._frames_until, now) + seconds
        if self._frames_until > now + _FRAMES_AHEAD_SECONDS:
            self.pause_reading("many frames")
            self._set_timer(
                self._frames_until - now, lambda: self.resume_reading("many frames")
            )

    def _set_timer(
        self, seconds: float | None, then: Callable[[], object] | None = None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None and then is not None:
            self._timer = self._loop.call_later(seconds, then)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def _join(self, data: bytes) -> None:
        behind = _ServerEnd(self)
        behind.other = self
        try:
            end = await self._connected()
            await self._loop.create_unix_connection(lambda: behind, sock=end)
        except OSError:
            # The server is being replaced or has ended: the client connects again.
            self._abort()
            return
        self.other = behind
        super().data_received(data)
        self.resume_reading("no server yet")

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
