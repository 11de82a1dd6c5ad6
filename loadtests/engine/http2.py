"""HTTP/2 (RFC 9113) as a gRPC client of one service needs it, on an asyncio transport.

grpc.aio hands every message from a thread of its own to the loop, at some 60 µs of CPU
a request; here all that came is read at once, and a request costs about half of that.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from loadtests.engine import hpack
from loadtests.engine.http2_frames import (
    HEAD,
    ProtocolViolation,
    frame,
    unpadded,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTING: Final = struct.Struct(">HI")
_WORD: Final = struct.Struct(">I")
_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 5, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PRIORITY = 1, 1, 4, 32
_TABLE_SIZE, _ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME = 1, 2, 3, 4, 5
_LARGEST_WINDOW: Final = 2**31 - 1
_DEFAULT_WINDOW: Final = 65_535
_DEFAULT_FRAME: Final = 16_384
_LARGEST_FRAME: Final = 2**24 - 1
_LARGEST_BLOCK: Final = 1 << 20
_REFILL: Final = 1 << 30
_REFUSED: Final = 7
_CANCEL: Final = 8
_MOST_TRIES: Final = 20
_LAST_STREAM: Final = 2**31 - 1
_HEAD_BYTES: Final = 9
_NOTHING: Final = memoryview(b"")


class Answered(Protocol):
    """Who waits for the answer to one request."""

    def answered(self, headers: Sequence[hpack.Header], content: bytes) -> None:
        """All of it came: the headers and trailers, and the data."""
        ...

    def broken(self, reason: str) -> None:
        """It will not come."""
        ...


@dataclass(slots=True)
class _Stream:
    waiting: Answered
    request: bytes
    tries: int
    unsent: memoryview = _NOTHING
    window: int = 0
    headers: tuple[hpack.Header, ...] = ()
    content: bytes | bytearray = b""


class Http2Connection(asyncio.Protocol):
    """One connection. `usable` while requests can be sent on it."""

    def __init__(self, headers: Sequence[hpack.Header]) -> None:
        self._literal = hpack.encoded(headers)
        self._first, self._short = hpack.remembered(headers)
        self._headers_fit = hpack.table_bytes(headers) <= hpack.TABLE_BYTES
        self._remembers: bool | None = None
        self._decoder = hpack.Decoder()
        self._streams: dict[int, _Stream] = {}
        self._queue: deque[tuple[Answered, bytes, int]] = deque()
        self._blocked: deque[int] = deque()
        self._next_stream = 1
        self._window = self._initial_window = _DEFAULT_WINDOW
        self._frame_bytes = _DEFAULT_FRAME
        self._most_streams = _LAST_STREAM
        self._taken_bytes = 0
        self._received = b""
        self._block: tuple[int, int, bytearray] | None = None
        self._reason = "the connection was closed"
        self.settled = asyncio.get_running_loop().create_future()
        """Done when the peer's settings came, or the connection is lost."""
        self.usable = False

    # Connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello: no pushes, windows as large as they go."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        settings = _SETTING.pack(_ENABLE_PUSH, 0) + _SETTING.pack(
            _INITIAL_WINDOW, _LARGEST_WINDOW
        )
        more = _WORD.pack(_LARGEST_WINDOW - _DEFAULT_WINDOW)
        hello = (
            _PREFACE,
            frame(_SETTINGS, 0, 0, settings),
            frame(_WINDOW, 0, 0, more),
        )
        transport.write(b"".join(hello))  # type: ignore[attr-defined]
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever waits, waits in vain."""
        self.usable = False
        if not self.settled.done():
            self.settled.set_result(False)
        reason = self._reason if exc is None else f"connection lost: {exc}"
        waiting = [stream.waiting for stream in self._streams.values()]
        waiting += [who for who, _, _ in self._queue]
        self._streams.clear()
        self._queue.clear()
        for who in waiting:
            who.broken(reason)

    def close(self) -> None:
        """End it at once."""
        self.usable = False
        self._transport.abort()

    # Requests.

    def request(self, waiting: Answered, content: bytes) -> None:
        """Send a request, or keep it while others have to end before it."""
        if len(self._streams) >= self._most_streams or not self.settled.done():
            self._queue.append((waiting, content, 0))
        else:
            self._open(waiting, content, 0)

    def cancel(self, waiting: Answered) -> None:
        """Nobody waits for this answer any more."""
        for number, stream in self._streams.items():
            if stream.waiting is waiting:
                del self._streams[number]
                self._write(frame(_RESET, 0, number, _WORD.pack(_CANCEL)))
                self._advance()
                return
        self._queue = deque(item for item in self._queue if item[0] is not waiting)

    def _open(self, waiting: Answered, content: bytes, tries: int) -> None:
        number = self._next_stream
        self._next_stream += 2
        if self._next_stream >= _LAST_STREAM:
            self.usable = False
        stream = _Stream(waiting, content, tries, window=self._initial_window)
        self._streams[number] = stream
        head = frame(_HEADERS, _END_HEADERS, number, self._block_of_headers())
        size = len(content)
        if size <= self._frame_bytes and size <= min(self._window, stream.window):
            self._window -= size
            self._write(head + frame(_DATA, _END_STREAM, number, content))
        else:
            self._write(head)
            # Slices of a view copy nothing.
            stream.unsent = memoryview(content)
            self._blocked.append(number)
            self._flush()

    def _block_of_headers(self) -> bytes:
        if not self._headers_fit or self._remembers is None:
            return self._literal
        if self._remembers:
            return self._short
        self._remembers = True
        return self._first

    def _flush(self) -> None:
        """Send of what is blocked as much as the windows allow, in order."""
        while self._blocked and self._window > 0:
            number = self._blocked[0]
            stream = self._streams.get(number)
            if stream is None:
                self._blocked.popleft()
                continue
            size = min(
                len(stream.unsent), self._window, stream.window, self._frame_bytes
            )
            if size <= 0:
                self._blocked.rotate(-1)
                if not any(self._can_send(other) for other in self._blocked):
                    return
                continue
            part, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._window -= size
            stream.window -= size
            flags = 0 if stream.unsent else _END_STREAM
            self._write(frame(_DATA, flags, number, part))
            if not stream.unsent:
                self._blocked.popleft()

    def _can_send(self, number: int) -> bool:
        stream = self._streams.get(number)
        return stream is None or stream.window > 0

    def _advance(self) -> None:
        while self._queue and len(self._streams) < self._most_streams and self.usable:
            self._open(*self._queue.popleft())

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    # What comes.

    def data_received(self, data: bytes) -> None:
        """Any number of frames, and a part of one."""
        data = self._received + data if self._received else data
        try:
            position = self._take_frames(data)
        except (ProtocolViolation, ValueError, IndexError, struct.error) as error:
            self._reason = f"the answer is no HTTP/2: {error}"
            self.close()
        else:
            self._received = data[position:]

    def _take_frames(self, data: bytes) -> int:
        """Take the whole frames; where the rest begins."""
        position, end = 0, len(data)
        while end - position >= _HEAD_BYTES:
            high, low, kind, flags, number = HEAD.unpack_from(data, position)
            size = (high << 16) | low
            if size > _DEFAULT_FRAME:
                raise ProtocolViolation(f"a frame of {size} bytes")
            start = position + _HEAD_BYTES
            if end < start + size:
                break
            position = start + size
            self._take(kind, flags, number & _LAST_STREAM, data[start:position])
        return position

    def eof_received(self) -> bool:
        """The other side sends no more."""
        self.usable = False
        return False

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if self._block is not None and kind != _CONTINUATION:
            raise ProtocolViolation("a header block was interrupted")
        if kind == _DATA:
            self._take_data(flags, number, content)
        elif kind == _HEADERS:
            content = unpadded(flags, content)
            content = content[5:] if flags & _PRIORITY else content
            self._take_block(flags, number, content, flags & _END_STREAM)
        elif kind == _CONTINUATION:
            self._take_continuation(flags, number, content)
        elif kind == _RESET:
            self._reset(number, _WORD.unpack(content)[0])
        else:
            self._take_control(kind, flags, number, content)

    def _take_control(self, kind: int, flags: int, number: int, content: bytes) -> None:
        """What is about the connection; kinds that are unknown are passed over."""
        if kind == _SETTINGS and not flags & _ACK:
            self._take_settings(content)
        elif kind == _WINDOW:
            self._take_window(number, _WORD.unpack(content)[0] & _LAST_STREAM)
        elif kind == _PING and not flags & _ACK:
            self._write(frame(_PING, _ACK, 0, content))
        elif kind == _GOAWAY:
            self._go_away(*struct.unpack_from(">II", content))
        elif kind == _PUSH:
            raise ProtocolViolation("a push that was not allowed")

    def _take_data(self, flags: int, number: int, content: bytes) -> None:
        self._taken_bytes += len(content)
        if self._taken_bytes >= _REFILL:
            self._write(frame(_WINDOW, 0, 0, _WORD.pack(self._taken_bytes)))
            self._taken_bytes = 0
        stream = self._streams.get(number)
        if stream is None:
            return  # given up
        content = unpadded(flags, content)
        if not stream.content:
            stream.content = content
        elif isinstance(stream.content, bytes):
            stream.content = bytearray(stream.content + content)
        else:
            stream.content += content  # in place
        if flags & _END_STREAM:
            self._end(number, stream)

    def _take_block(self, flags: int, number: int, block: bytes, ends: int) -> None:
        if not flags & _END_HEADERS:
            self._block = (number, ends, bytearray(block))
            return
        headers = self._decoder.decode(block)
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.headers += headers
        if ends:
            self._end(number, stream)

    def _take_continuation(self, flags: int, number: int, content: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise ProtocolViolation("a continuation of nothing")
        _, ends, before = self._block
        if len(before) + len(content) > _LARGEST_BLOCK:
            raise ProtocolViolation("a header block without end")
        before += content
        if flags & _END_HEADERS:
            self._block = None
            self._take_block(flags, number, bytes(before), ends)

    def _take_settings(self, content: bytes) -> None:
        table = hpack.TABLE_BYTES
        for key, value in _SETTING.iter_unpack(content):
            if key == _TABLE_SIZE:
                table = value
            elif key == _MAX_STREAMS:
                self._most_streams = value
            elif key == _MAX_FRAME:
                self._frame_bytes = within(value, _DEFAULT_FRAME, _LARGEST_FRAME)
            elif key == _INITIAL_WINDOW:
                self._widen(within(value, 0, _LARGEST_WINDOW))
        if table < hpack.TABLE_BYTES:
            # Each block says first that the table is empty, and holds all it needs.
            self._headers_fit = False
            self._literal = hpack.EMPTY_TABLE + self._literal
        elif self._remembers is None:
            self._remembers = False
        self._write(frame(_SETTINGS, _ACK, 0, b""))
        if not self.settled.done():
            self.settled.set_result(True)
        self._flush()
        self._advance()

    def _widen(self, window: int) -> None:
        for stream in self._streams.values():
            stream.window += window - self._initial_window
        self._initial_window = window

    def _take_window(self, number: int, more: int) -> None:
        stream = self._streams.get(number)
        if number == 0:
            self._window += more
        elif stream is not None:
            stream.window += more
        self._flush()

    def _go_away(self, last: int, code: int) -> None:
        """No more streams; those the peer never saw are lost, the others end."""
        self.usable = False
        self._reason = f"the server went away (code {code})"
        for number in [n for n in self._streams if n > last]:
            self._drop(number, self._reason)
        while self._queue:
            self._queue.popleft()[0].broken(self._reason)
        if not self._streams:
            self._transport.close()

    def _reset(self, number: int, code: int) -> None:
        stream = self._streams.get(number)
        if code != _REFUSED or stream is None or stream.tries >= _MOST_TRIES:
            self._drop(number, f"stream reset with code {code}")
            return
        # The server did nothing with it, and says that it may be sent again: its count
        # of streams falls a moment after it has answered one.
        del self._streams[number]
        again = (stream.waiting, stream.request, stream.tries + 1)
        if self._streams:
            self._queue.appendleft(again)
        else:
            self._open(*again)

    def _drop(self, number: int, reason: str) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            if stream.headers and any(n == b"grpc-status" for n, _ in stream.headers):
                stream.waiting.answered(stream.headers, bytes(stream.content))
            else:
                stream.waiting.broken(reason)
            self._advance()

    def _end(self, number: int, stream: _Stream) -> None:
        del self._streams[number]
        if stream.unsent:
            # It answered before it had heard all.
            self._write(frame(_RESET, 0, number, _WORD.pack(0)))
        stream.waiting.answered(stream.headers, bytes(stream.content))
        if self._queue:
            self._advance()
        if not self.usable and not self._streams:
            self._transport.close()
