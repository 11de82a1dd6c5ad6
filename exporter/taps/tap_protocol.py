"""The tap's connections: skipped requests are answered where they are parsed.

Most mirrored requests are passed over. Each of them as a task of its own in an ASGI
cycle would cost three times as much, most of it for a body that nobody wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exporter.network.connections import (
    HEAD_SECONDS,
    IDLE_SECONDS,
    MAX_AHEAD,
    BoundedProtocol,
    BoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.taps.tap_route import TapAnswer

    Headers = Iterable[tuple[bytes, bytes]]
    PassOver = Callable[[str, Headers], tuple[TapAnswer | None, bool]]

ADMITTED = "admitted"
"""Key in the state of a request that was admitted."""


class TapProtocol(BoundedProtocol):
    """One connection. The bodies of skipped requests are discarded as they arrive."""

    parser: Any

    def __init__(self, *args: Any, pass_over: PassOver, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pass_over = pass_over
        self._answer: TapAnswer | None = None
        self._idle = False
        self._skipped = 0
        """Requests that were skipped in the data that are being read."""

    def data_received(self, data: bytes) -> None:
        """Feed the parser: in these data only the first request was not sent ahead."""
        self._skipped = 0
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Handle the start of a request."""
        self._idle = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Skip the request, or continue with it."""
        if self._in_turn():
            answer, decided = self._pass_over(self.url.decode(), self.headers)
            if answer is not None:
                self._skipped += 1
                if self._skipped > 1 + MAX_AHEAD:
                    self._abort()
                    raise BoundError
                self._answer = answer
                self._held_bytes = 0
                self._waits_since = self.loop.time()
                return
            if decided:
                self.scope.setdefault("state", {})[ADMITTED] = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body; discard it if the request is skipped."""
        if self._answer is None:
            super().on_body(body)
        else:
            self._bound_parts(len(body))
            self._held_bytes = 0

    def on_message_complete(self) -> None:
        """Handle the end of the body, when its sender expects an answer."""
        answer, self._answer = self._answer, None
        if answer is None:
            super().on_message_complete()
            return
        if self.transport.is_closing():
            return
        self._waits_since, self._idle = self.loop.time(), True
        kept = self.parser.should_keep_alive() and "connection" not in answer.headers
        # Otherwise a proxy would send its next request into the closing connection.
        self.transport.write(answer.wire(kept=kept))
        if not kept:
            self.transport.close()

    def _in_turn(self) -> bool:
        """Return whether it can be answered now: plain, and with none before it."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.pipeline
            and not self._stalled
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and self.parser.get_method() == b"POST"
            and self.url.isascii()
            and b"?" not in self.url
            and b"%" not in self.url
        )

    def _late(self) -> None:
        # One timer for many requests: moved on here, not at each of them.
        patience = IDLE_SECONDS if self._idle else HEAD_SECONDS
        left = self._waits_since + patience - self.loop.time()
        if left > 0 and not self._stalled:
            self._timer = self.loop.call_later(left, self._late)
        else:
            super()._late()
