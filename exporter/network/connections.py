"""HTTP connections with limits on bytes and time; admission.py limits their number.

uvicorn bounds none of a request's head, of requests sent ahead of their answers, of the
time until the first request, and of the time an answer stays unread. Anyone who reaches
the port could use up all memory, or hold every connection for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from exporter.network.admission import Visitor

MAX_HEAD_BYTES: Final = 64 << 10
"""Limit of a request's line, headers and trailers together, each with its overhead."""
_HEADER_BYTES: Final = 200
"""Memory of a header besides its bytes, however short the header is."""
_SMALL_PARTS: Final = 1_000
_PART_BYTES: Final = 64
"""Mean size below which parts of a body count as too small after the first ones: chunks
of one byte would keep the event loop busy for longer than they take to be sent."""
MAX_AHEAD: Final = 8
"""Requests sent before the answer to the first of them."""
HEAD_SECONDS: Final = 10.0
"""Time from the connection, or a later request's first byte, to the end of its head."""
IDLE_SECONDS: Final = 75.0
"""Time from an answer to the next request: longer than any usual scrape interval, since a
connection that is closed just as it is used again fails that scrape.
"""
UNREAD_SECONDS: Final = 30.0
"""Seconds after which a connection is closed whose peer does not read its answer."""
ANSWER_SECONDS: Final = 60.0
"""Time from a request to the end of its answer, if the client reads it slowly."""
HANDSHAKE_SECONDS: Final = 10.0
"""Longest duration of a TLS handshake."""


class BoundError(Exception):
    """The connection has reached a limit and ends."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, represented by its visitor at the entrance."""

    def __init__(self, *args: Any, visitor: Visitor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._visitor = visitor
        self._head_bytes = self._held_bytes = 0
        self._parts = self._body_bytes = 0
        self._stalled = False
        self._waits_since = self._requested_at = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._answered: Any = None
        """The request that is being answered, with others perhaps behind it."""

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Accept the connection."""
        super().connection_made(transport)
        self._wait(HEAD_SECONDS)
        self._visitor.end = self._abort
        self._visitor.idle_since = self._idle_since

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the place at the entrance."""
        self._unset_timer()
        self._visitor.leave()
        super().connection_lost(exc)
        # uvicorn keeps its timer, and with it the connection, where one was broken off.
        self._unset_keepalive_if_required()

    def _abort(self) -> None:
        """Close the connection at once: later answers are not written."""
        # A TLS transport would raise an error for each of them.
        for cycle in (self._answered, self.cycle):
            if cycle is not None:
                cycle.disconnected = True
        self.transport.abort()

    @property
    def waits(self) -> bool:
        """True while nothing happens until the peer sends or reads."""
        return self._stalled or self.cycle is None or self.cycle.response_complete

    def _idle_since(self) -> float | None:
        if self.waits:
            return self._waits_since
        # However steadily a body drips in, it counts from its beginning.
        return self._requested_at if self.cycle.more_body else None

    # Time.

    def on_response_complete(self) -> None:
        """Answer the request that waits, or wait for the next one."""
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        super().on_response_complete()
        if not self.pipeline and not self._stalled:
            self._wait(IDLE_SECONDS)

    def pause_writing(self) -> None:
        """The answer is not read fast enough."""
        super().pause_writing()
        self._stalled = True
        left = self._requested_at + ANSWER_SECONDS - self.loop.time()
        self._wait(min(UNREAD_SECONDS, left))

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
        self._timer = self.loop.call_later(seconds, self._abort)

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
            self._abort()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self.waits and not self._stalled:
            self._wait(HEAD_SECONDS)
        self._head_bytes = self._held_bytes = 0
        self._parts = self._body_bytes = 0

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
            self._abort()
            raise BoundError
        if not self._stalled:
            self._unset_timer()
        self._requested_at = self.loop.time()
        super().on_headers_complete()
        if not self.pipeline:
            self._answered = self.cycle

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body; after the answer only a little more is accepted."""
        self._bound_parts(len(body))
        if not self.cycle.response_complete:
            self._held_bytes = 0
        super().on_body(body)

    def _bound_parts(self, number: int) -> None:
        self._parts += 1
        self._body_bytes += number
        if self._parts > _SMALL_PARTS + self._body_bytes // _PART_BYTES:
            self._abort()
            raise BoundError

    def _count(self, number: int) -> None:
        self._held_bytes = 0
        self._head_bytes += number + _HEADER_BYTES
        if self._head_bytes > MAX_HEAD_BYTES:
            raise BoundError
