"""Requests over HTTP/1.1: whole messages made once, connections of our own.

One request at a time on each connection, the connection used last first; a new one when
none is free. An answer is read in one piece where it comes in one, and where its frame
is known it is not parsed at all.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final, Self

import httptools

from loadtests.engine.http_messages import (
    Answer,
    StreamedAnswer,
    dialect_of,
    head_of,
    judge_whole,
    sequence_wire,
    wire_of,
)
from loadtests.engine.senders import SMALL_BYTES, Sender, Turn, joined
from loadtests.errors import LoadError
from loadtests.result import Outcome
from loadtests.tls import reason_of

if TYPE_CHECKING:
    from types import TracebackType

    from loadtests.engine.recorder import Recorder
    from loadtests.engine.senders import Sequence
    from loadtests.plan import Body, Mix
    from loadtests.target import Target

_CONNECT_SECONDS: Final = 10.0
_UNDER_WAY_SECONDS: Final = 0.05
"""Time in which a request and the end of its connection may meet on the way."""
_OK: Final = 200
"""The server or a proxy is unavailable; neither has looked at the request."""
_SHOWN: Final = 300


class HttpSender(Sender):
    """A pool of connections to one server, as many as there are requests in flight."""

    def __init__(
        self, target: Target, mix: Mix, *, timeout_seconds: float, seed: int
    ) -> None:
        super().__init__(target, mix, timeout_seconds=timeout_seconds, seed=seed)
        self._heads = [head_of(target, entry) for entry in mix.entries]
        self._wires = [
            [wire_of(head, body.data, body.header_bytes) for body in entry.bodies]
            for head, entry in zip(self._heads, mix.entries, strict=True)
        ]
        self.dialects = [dialect_of(target.protocol, entry) for entry in mix.entries]
        self.streams = [entry.style == "stream" for entry in mix.entries]
        self.idle: list[_Connection] = []
        self._busy = 0
        self._connections: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                self.idle.append(await self._connect())
        except (OSError, TimeoutError) as error:
            raise LoadError(
                f"no HTTP server answers at {self._target.address}: "
                f"{_reason(error)}; is the address right?"
            ) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._wait_for_answers(kind)
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in tuple(self._connections):
            connection.close()
        # A transport is closed by the loop's next turn.
        await asyncio.sleep(0)

    def unfinished(self) -> int:
        """Return the number of requests that have not ended."""
        return self._busy

    def send(self, index: int, recorder: Recorder) -> None:
        """Start the request."""
        place = recorder.entry[index]
        entry = self._mix.entries[place]
        which = index % len(entry.bodies)
        sequence: Sequence | None = None
        wire = self._wires[place][which]
        if entry.spec.sequence:
            sequence = following = self.turns.next_sequence(place)
            wire = sequence_wire(self._heads[place], entry.bodies[which], following)
        request = Turn(index, place, entry.bodies[which], recorder, sequence)
        recorder.begin(index)
        self._begin(request, wire)

    def _begin(self, request: Turn, wire: bytes) -> None:
        self._busy += 1
        late_at = self._loop.time() + self.timeout
        while self.idle:
            connection = self.idle.pop()
            if connection.usable:
                connection.send(request, wire, late_at)
                return
        self.open(request, wire, late_at)

    def open(self, request: Turn, wire: bytes, late_at: float) -> None:
        """Send a request on a new connection; at `late_at` of the loop it is too late."""
        task = self._loop.create_task(self._send_on_new(request, wire, late_at))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _close(self, place: int, body: Body, sequence: Sequence) -> None:
        wire = sequence_wire(self._heads[place], body, sequence)
        self._begin(Turn(-1, place, body, None, None), wire)

    def finish(
        self, request: Turn, outcome: Outcome, now: float, message: str | None
    ) -> None:
        """Record the end of a request."""
        self._busy -= 1
        self.turns.ended(request, outcome, now, message)

    def lose(self, request: Turn, now: float, message: str) -> None:
        """Record the end of a request without an answer."""
        self._busy -= 1
        self.turns.lost(request, now, message)

    def forget(self, connection: _Connection) -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)

    async def _send_on_new(self, request: Turn, wire: bytes, late_at: float) -> None:
        try:
            async with asyncio.timeout_at(late_at):
                connection = await self._connect()
        except TimeoutError:
            self.finish(request, Outcome.TIMEOUT, perf_counter(), None)
        except OSError as error:
            message = f"cannot connect: {_reason(error)}"
            self.turns.count_own_limit(request, error)
            self.lose(request, perf_counter(), message)
        else:
            connection.send(request, wire, late_at)

    async def _connect(self) -> _Connection:
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self),
            self._target.host,
            self._target.port,
            ssl=self._tls,
        )
        self._connections.add(connection)
        return connection


class _Connection(asyncio.Protocol):
    """One connection; `usable` while another request may be sent on it.

    A server may close one between two requests. The request that finds it closed is sent
    once more, on a new connection, if that shows at once and no part of an answer has
    come; a step of a sequence is not, since the server may have taken it.
    """

    def __init__(self, sender: HttpSender) -> None:
        self._sender = sender
        self._wire, self._late_at, self._sent_at = b"", 0.0, 0.0
        self._resends = False
        """True if a request that is lost now may be sent again."""
        self._has_answered = False
        self._loop = asyncio.get_running_loop()
        self._request: Turn | None = None
        self._received: bytes | bytearray = b""
        self._kept_bytes = 0
        self._parser: Answer | None = None
        self._stream: StreamedAnswer | None = None
        self._late: asyncio.TimerHandle | None = None
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle an opened connection."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        self.usable = False
        self._sender.forget(self)
        request, stream = self._request, self._stream
        if request is not None and stream is not None and stream.is_whole:
            self._judge_stream(request, stream, perf_counter())
        elif request is not None and self._was_idle and request.sequence is None:
            self._release()
            self._sender.open(request, self._wire, self._late_at)
        elif request is not None:
            reason = "the server closed it" if exc is None else _reason(exc)
            self._lose(perf_counter(), f"connection lost: {reason}")

    @property
    def _was_idle(self) -> bool:
        """True if it probably ended before the request reached the server."""
        return self._resends and self._loop.time() - self._sent_at < _UNDER_WAY_SECONDS

    def send(self, request: Turn, wire: bytes, late_at: float) -> None:
        """Send a request and wait for its answer, until `late_at` of the loop."""
        self._request = request
        self._wire, self._late_at = wire, late_at
        self._resends, self._sent_at = self._has_answered, self._loop.time()
        self._received = b""
        self._parser = None
        dialect = self._sender.dialects[request.place]
        streams = self._sender.streams[request.place]
        self._stream = StreamedAnswer(dialect) if dialect and streams else None
        self._late = self._loop.call_at(late_at, self._time_out)
        self._transport.write(wire)

    def close(self) -> None:
        """End it, and the request on it."""
        self.usable = self._resends = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process a part of an answer, usually the whole of it."""
        now = perf_counter()
        request = self._request
        if request is None:
            # An unsolicited answer, or the rest of one that was given up.
            self.close()
            return
        self._resends = False
        if self._stream is not None:
            self._follow(request, self._stream, data, now)
            return
        if not self._received and self._sender.turns.checks[request.place].knows(
            data, request.body
        ):
            self._end(Outcome.OK, now, None)
            return
        fault = self._keep(data)
        if fault is not None:
            self._break(now, fault)
            return
        if self._parser is None:
            self._parser = Answer()
        try:
            self._parser.feed(data)
        except httptools.HttpParserError as error:
            self._break(now, f"the answer is not HTTP: {error}")
            return
        if self._parser.complete:
            self._judge(request, self._parser, now)

    def eof_received(self) -> bool:
        """Handle the end of the peer's data."""
        self.usable = False
        return False

    def _keep(self, data: bytes) -> str | None:
        """Append data to the answer; return the error if it is too large."""
        more = len(data) if self._received or len(data) > SMALL_BYTES else 0
        self._received = joined(self._received, data)
        self._kept_bytes += more
        return self._sender.keeping.fault(len(self._received), more)

    def _follow(
        self, request: Turn, stream: StreamedAnswer, data: bytes, now: float
    ) -> None:
        """Process a part of a streamed answer; its events came when it was read."""
        try:
            stream.feed(data)
            events = stream.events()
        except httptools.HttpParserError as error:
            self._break(now, f"the answer is not HTTP: {error}")
            return
        except ValueError as error:
            self._break(now, f"an event of the answer cannot be read: {error}")
            return
        grown = stream.held_bytes - self._kept_bytes
        self._kept_bytes += grown
        fault = self._sender.keeping.fault(stream.held_bytes, grown)
        if fault is not None:
            self._break(now, fault)
            return
        for event in events:
            if event.error is not None:
                self.close()
                self._end(Outcome.ERROR, now, event.error)
                return
            if event.content and request.recorder is not None:
                request.recorder.respond(request.index, now, stream.since)
                stream.since = now
        if stream.complete:
            self._judge_stream(request, stream, now)

    def _judge_stream(self, request: Turn, stream: StreamedAnswer, now: float) -> None:
        if stream.status != _OK:
            self._judge(request, stream, now)
            return
        if not stream.keeps_alive:
            self.close()
        fault = stream.fault()
        if request.recorder is not None and stream.tokens:
            request.recorder.count_tokens(request.index, stream.tokens)
        last = now if stream.since is None else stream.since
        self._end(Outcome.OK if fault is None else Outcome.WRONG, last, fault)

    def _judge(self, request: Turn, answer: Answer, now: float) -> None:
        if not answer.keeps_alive:
            self.close()
        body = answer.body
        if answer.status != _OK:
            text = body[:_SHOWN].decode("utf-8", "replace")
            self._end(Outcome.ERROR, now, f"HTTP {answer.status}: {text}")
            return
        dialect = self._sender.dialects[request.place]
        if dialect is not None:
            outcome, fault, tokens = judge_whole(dialect, body)
            if request.recorder is not None and tokens:
                request.recorder.count_tokens(request.index, tokens)
            self._end(outcome, now, fault)
            return
        # An answer in chunks is judged by what it holds, and its frame not learnt.
        whole, head = bytes(self._received), len(self._received) - len(body)
        if whole[head:] != body:
            whole, head = body, 0
        fault = self._sender.turns.checks[request.place].http_fault(
            whole,
            head,
            answer.json_bytes,
            request.body,
            # An answer that ends its connection has to be read in full each time.
            learns=answer.keeps_alive,
        )
        self._end(Outcome.OK if fault is None else Outcome.WRONG, now, fault)

    def _break(self, now: float, fault: str) -> None:
        self.close()
        self._end(Outcome.WRONG, now, fault)

    def _time_out(self) -> None:
        self.close()
        self._end(Outcome.TIMEOUT, perf_counter(), None)

    def _end(self, outcome: Outcome, now: float, message: str | None) -> None:
        request = self._release()
        if request is None:
            return
        if self.usable:
            self._has_answered = True
            self._sender.idle.append(self)
        self._sender.finish(request, outcome, now, message)

    def _lose(self, now: float, message: str) -> None:
        request = self._release()
        if request is not None:
            self._sender.lose(request, now, message)

    def _release(self) -> Turn | None:
        """Return the request of the connection and clear it."""
        request, self._request = self._request, None
        if request is None:
            return None
        if self._late is not None:
            self._late.cancel()
        if self._kept_bytes:
            self._sender.keeping.drop(self._kept_bytes)
            self._kept_bytes = 0
        return request


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return f"no connection within {_CONNECT_SECONDS:g} s"
    return reason_of(error)
