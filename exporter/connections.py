"""HTTP connections that nobody can use up: bounded in bytes, in time and in number.

uvicorn bounds none of a request's head, of requests sent ahead of their answers, of the
time until the first request, and of the time an answer stays unread. Whoever reaches the
port could so take all memory, or every connection for ever.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

MAX_CONNECTIONS: Final = 128
MAX_HEAD_BYTES: Final = 64 << 10
"""Of a request's line, headers and trailers together."""
MAX_AHEAD: Final = 8
"""Requests sent before the answer to the first of them."""
HEAD_SECONDS: Final = 10.0
"""From the connection, or a later request's first byte, to the end of its head."""
IDLE_SECONDS: Final = 75.0
"""From an answer to the next request: longer than any usual scrape interval, since a
connection that ends at the very moment it is used again costs that scrape."""
UNREAD_SECONDS: Final = 30.0
"""How long an answer may stay unread."""


HANDSHAKE_SECONDS: Final = 10.0
"""How long a TLS handshake may take."""
MAX_HANDSHAKES: Final = 128
"""TLS handshakes at once: asyncio sets 256 kB aside for each."""


class _HeadError(Exception):
    pass


class _TooManyHandshakesError(Exception):
    pass


class Handshakes:
    """Makes the protocols of a TLS listener, no more at once than are bounded here.

    Before its handshake is over asyncio tells a protocol nothing, its end neither: it is
    over when the protocol is gone, at the latest when its time is.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[int, float] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> BoundedProtocol:
        """A protocol for a connection that was just accepted; raises to end it."""
        now = self._clock()
        over = [k for k, t in self._begun.items() if now - t > HANDSHAKE_SECONDS]
        for key in over:
            del self._begun[key]
        if len(self._begun) >= MAX_HANDSHAKES:
            raise _TooManyHandshakesError
        protocol = BoundedProtocol(*args, **kwargs)
        key = id(protocol)
        self._begun[key] = now
        protocol.on_made = lambda: self._begun.pop(key, None)
        weakref.finalize(protocol, self._begun.pop, key, None)
        return protocol


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A new one over the limit ends the one that waits the longest."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._held_bytes = 0
        self._stalled = False
        self._waits_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.on_made: Callable[[], object] = int

    # Number.

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Take the connection, or end it where none can make room."""
        super().connection_made(transport)
        self.on_made()
        self._wait(HEAD_SECONDS)
        open_ones = [c for c in self._neighbours() if not c.transport.is_closing()]
        if len(open_ones) <= MAX_CONNECTIONS:
            return
        # The newest is the likeliest to be a scrape, and the last to be ended.
        waiting = [c for c in open_ones if c.waits and c is not self]
        longest = min(waiting, key=lambda c: c.waiting_since, default=self)
        longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tidy up."""
        self._unset_timer()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether it is the other side that nothing happens for."""
        return self._stalled or self.cycle is None or self.cycle.response_complete

    @property
    def waiting_since(self) -> float:
        """The loop's time at which the wait began."""
        return self._waits_since

    def _neighbours(self) -> Iterator[BoundedProtocol]:
        return (c for c in self.connections if isinstance(c, BoundedProtocol))

    # Time.

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.pipeline:
            self._wait(IDLE_SECONDS)

    def pause_writing(self) -> None:
        """The answer is not read fast enough."""
        super().pause_writing()
        self._stalled = True
        self._wait(UNREAD_SECONDS)

    def resume_writing(self) -> None:
        """The answer is being read."""
        super().resume_writing()
        self._stalled = False
        if self.waits:
            self._wait(IDLE_SECONDS)
        else:
            self._unset_timer()

    def _wait(self, seconds: float) -> None:
        self._unset_timer()
        self._waits_since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        waited = self.loop.time() - self._waits_since
        if self.transport.get_write_buffer_size() and waited < UNREAD_SECONDS:
            self._timer = self.loop.call_later(UNREAD_SECONDS - waited, self._late)
        else:
            self.transport.abort()

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Bytes.

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which keeps a header until it has the whole of it."""
        self._held_bytes += len(data)
        super().data_received(data)
        if self._held_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.abort()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self.waits and not self._stalled:
            self._wait(HEAD_SECONDS)
        self._head_bytes = self._held_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A part of the request's line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request can be answered, or wait for the answers before it."""
        self._held_bytes = 0
        if len(self.pipeline) >= MAX_AHEAD:
            # Not answered 400: that would stand before the answers still to come.
            self.transport.abort()
            raise _HeadError
        if not self._stalled:
            self._unset_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body; after the answer nobody wants more than a little of it."""
        if not self.cycle.response_complete:
            self._held_bytes = 0
        super().on_body(body)

    def _count(self, number: int) -> None:
        self._held_bytes = 0
        self._head_bytes += number + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _HeadError
