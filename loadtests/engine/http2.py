"""HTTP/2 (RFC 9113) as a gRPC client of one service needs it, on an asyncio transport.

grpc.aio hands every message from a thread of its own to the loop, at some 60 µs of CPU
a request; here all that came is read at once, and a request costs about half of that.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from loadtests.engine.http2_streams import (
    DEFAULT_WINDOW,
    HEAD,
    HELLO,
    LARGEST_WINDOW,
    SETTING,
    TABLE_BYTES,
    WORD,
    Decoder,
    ProtocolViolation,
    SameHeaders,
    Stream,
    frame,
    table_bytes,
    unpadded,
    within,
)
from loadtests.engine.senders import SMALL_BYTES, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.engine.grpc_calls import Call
    from loadtests.engine.http2_streams import Header
    from loadtests.engine.senders import Keeping

_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 5, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PRIORITY = 1, 1, 4, 32
_TABLE_SIZE, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME = 1, 3, 4, 5
_DEFAULT_FRAME: Final = 16_384
_LARGEST_FRAME: Final = 2**24 - 1
_REFILL: Final = 1 << 30
_REFUSED, _CANCEL, _MOST_TRIES = 7, 8, 20
_MOST_GIVEN_UP: Final = 64
"""Answers read on at a time. A server has taken their requests before those that are
cancelled then, which it is hardly answering yet."""
_LAST_STREAM: Final = 2**31 - 1
_MOST_UNREAD: Final = 1 << 20
"""Maximum number of acknowledgement bytes that the peer has not read."""


class Http2Connection(asyncio.Protocol):
    """One connection. `usable` while requests can be sent on it."""

    def __init__(self, headers: Sequence[Header], keeping: Keeping) -> None:
        self._keeping = keeping
        self._headers = SameHeaders(headers)
        self._decoder = Decoder()
        self._streams: dict[int, Stream] = {}
        self._queue: deque[tuple[Call, bytes, int]] = deque()
        self._blocked: dict[int, None] = {}
        self._next_stream = 1
        self._window = self._initial_window = DEFAULT_WINDOW
        self._frame_bytes = _DEFAULT_FRAME
        self._most_streams = _LAST_STREAM
        self._unacknowledged_bytes = self._unread_bytes = 0
        self._received = b""
        self._held: list[bytes] | None = None
        self._reason = "the connection was closed"
        self.settled = asyncio.get_running_loop().create_future()
        """Done when the peer's settings came, or the connection is lost."""
        self.usable = False
        self.given_up = 0
        """Answers that are read on."""

    # Connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface: no pushes, and the largest windows."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(HELLO)
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests that wait."""
        self.usable = False
        if not self.settled.done():
            self.settled.set_result(False)
        reason = self._reason if exc is None else f"connection lost: {exc}"
        for call in self._dropped():
            call.lost(reason)

    def close(self) -> None:
        """End it at once."""
        self.usable = False
        self._transport.abort()

    # Requests.

    def request(self, waiting: Call, content: bytes) -> None:
        """Send a request, or keep it while others have to end before it."""
        if len(self._streams) >= self._most_streams or not self.settled.done():
            self._queue.append((waiting, content, 0))
            waiting.queued()
        else:
            self._open(waiting, content, 0)

    def give_up(self, waiting: Call) -> None:
        """Drop an answer that is no longer awaited."""
        for number, stream in self._streams.items():
            if stream.waiting is waiting:
                self._give_up(number, stream)
                return
        self._queue = deque(item for item in self._queue if item[0] is not waiting)

    def _open(self, waiting: Call, content: bytes, tries: int) -> None:
        number = self._next_stream
        self._next_stream += 2
        if self._next_stream >= _LAST_STREAM:
            self.usable = False
        stream = Stream(waiting, content, tries, window=self._initial_window)
        self._streams[number] = stream
        block = self._headers.block(waiting.path)
        head = frame(_HEADERS, _END_HEADERS, number, block)
        size = len(content)
        if size <= self._frame_bytes and size <= min(self._window, stream.window):
            self._window -= size
            self._write(head + frame(_DATA, _END_STREAM, number, content))
        else:
            self._write(head)
            # Slices of a view copy nothing.
            stream.unsent = memoryview(content)
            self._blocked[number] = None
            self._flush()

    def _flush(self) -> None:
        """Send as much blocked data as the windows allow, in order."""
        for number in tuple(self._blocked):
            stream = self._streams.get(number)
            while stream is not None and stream.unsent:
                size = min(
                    len(stream.unsent), self._window, stream.window, self._frame_bytes
                )
                if size <= 0:
                    break
                part, stream.unsent = stream.unsent[:size], stream.unsent[size:]
                self._window -= size
                stream.window -= size
                flags = 0 if stream.unsent else _END_STREAM
                self._write(frame(_DATA, flags, number, part))
            if stream is None or not stream.unsent:
                del self._blocked[number]

    def _advance(self) -> None:
        while self._queue and len(self._streams) < self._most_streams and self.usable:
            self._open(*self._queue.popleft())

    def _write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def _acknowledge(self, data: bytes) -> None:
        """Answer a peer that may ask for as much as it likes, but has to read it."""
        if not self._transport.get_write_buffer_size():
            self._unread_bytes = 0
        self._unread_bytes += len(data)
        if self._unread_bytes > _MOST_UNREAD:
            raise ProtocolViolation("the server does not read acknowledgements")
        self._write(data)

    # Receiving.

    def data_received(self, data: bytes) -> None:
        """Process any number of frames, and a part of one."""
        data = self._received + data if self._received else data
        # What is sent while answers are read goes out together: one system call, and
        # the server finds as many requests as it has answered.
        held = self._held = list[bytes]()
        try:
            position = self._process_frames(data)
        except (ProtocolViolation, ValueError, IndexError, struct.error) as error:
            self._reason = f"the answer is not HTTP/2: {error}"
            self.close()
        else:
            self._received = data[position:]
        finally:
            self._held = None
        if held:
            self._write(b"".join(held))

    def _process_frames(self, data: bytes) -> int:
        """Process the complete frames; return the position of the rest."""
        position, end = 0, len(data)
        while end - position >= HEAD.size:
            high, low, kind, flags, number = HEAD.unpack_from(data, position)
            size = (high << 16) | low
            if size > _DEFAULT_FRAME:
                raise ProtocolViolation(f"a frame of {size} bytes")
            start = position + HEAD.size
            if end < start + size:
                break
            position = start + size
            self._process_frame(
                kind, flags, number & _LAST_STREAM, data[start:position]
            )
        return position

    def eof_received(self) -> bool:
        """Handle the end of the peer's data."""
        self.usable = False
        return False

    def _process_frame(
        self, kind: int, flags: int, number: int, content: bytes
    ) -> None:
        if self._decoder.begun is not None and kind != _CONTINUATION:
            raise ProtocolViolation("a header block was interrupted")
        if kind == _DATA:
            self._process_data(flags, number, content)
        elif kind == _HEADERS:
            content = unpadded(flags, content)
            content = content[5:] if flags & _PRIORITY else content
            self._process_block(flags, number, content, flags & _END_STREAM)
        elif kind == _CONTINUATION:
            ends, block = self._decoder.continued(number, content)
            self._process_block(flags, number, block, ends)
        elif kind == _RESET:
            self._reset(number, WORD.unpack(content)[0])
        else:
            self._process_control(kind, flags, number, content)

    def _process_control(
        self, kind: int, flags: int, number: int, content: bytes
    ) -> None:
        """Handle a frame of the connection; unknown kinds are ignored."""
        if kind == _SETTINGS and not flags & _ACK:
            self._process_settings(content)
        elif kind == _WINDOW:
            self._process_window(number, WORD.unpack(content)[0] & _LAST_STREAM)
        elif kind == _PING and not flags & _ACK:
            within(len(content), 8, 8, "a ping of {} bytes")
            self._acknowledge(frame(_PING, _ACK, 0, content))
        elif kind == _GOAWAY:
            self._go_away(*struct.unpack_from(">II", content))
        elif kind == _PUSH:
            raise ProtocolViolation("a push that was not allowed")

    def _process_data(self, flags: int, number: int, content: bytes) -> None:
        self._unacknowledged_bytes += len(content)
        if self._unacknowledged_bytes >= _REFILL:
            self._write(frame(_WINDOW, 0, 0, WORD.pack(self._unacknowledged_bytes)))
            self._unacknowledged_bytes = 0
        stream = self._streams.get(number)
        if stream is None:
            return  # cancelled
        content = b"" if stream.given_up else unpadded(flags, content)
        if not stream.content and len(content) <= SMALL_BYTES:
            stream.content = content
        elif self._keep(number, stream, len(content)):
            stream.content = joined(stream.content, content)
        else:
            return
        if stream.waiting.path is not None:
            rest = stream.waiting.receive_part(stream.content)
            if len(rest) < len(stream.content):
                # The rest came in this frame.
                stream.empty(self._keeping, rest)
        if flags & _END_STREAM:
            self._end(number, stream)

    def _process_block(
        self, flags: int, number: int, block: bytes | bytearray, ends: int
    ) -> None:
        if not flags & _END_HEADERS:
            self._decoder.begun = (number, ends, block)
            return
        headers = self._decoder.decode(bytes(block))
        stream = self._streams.get(number)
        if stream is None:
            return
        if ends:
            stream.headers += headers
            self._end(number, stream)
        elif len(block) <= SMALL_BYTES or self._keep(
            number, stream, table_bytes(headers)
        ):
            stream.headers = headers  # earlier ones only announced these

    def _process_settings(self, content: bytes) -> None:
        table = TABLE_BYTES
        for key, value in SETTING.iter_unpack(content):
            if key == _TABLE_SIZE:
                table = value
            elif key == _MAX_STREAMS:
                self._most_streams = value
            elif key == _MAX_FRAME:
                self._frame_bytes = within(value, _DEFAULT_FRAME, _LARGEST_FRAME)
            elif key == _INITIAL_WINDOW:
                window = within(value, 0, LARGEST_WINDOW)
                for stream in self._streams.values():
                    stream.window += window - self._initial_window
                self._initial_window = window
        self._headers.allow(table)
        self._acknowledge(frame(_SETTINGS, _ACK, 0, b""))
        if not self.settled.done():
            self.settled.set_result(True)
        self._flush()
        self._advance()

    def _process_window(self, number: int, more: int) -> None:
        stream = self._streams.get(number)
        if number == 0:
            self._window += more
        elif stream is not None:
            stream.window += more
        self._flush()

    def _go_away(self, last: int, code: int) -> None:
        """Handle GOAWAY: the peer did not process the streams after `last`."""
        self.usable = False
        self._reason = f"the server closed the connection (GOAWAY, code {code})"
        for call in self._dropped(last):
            call.not_processed(self._reason)
        if not self._streams:
            self._transport.close()

    def _dropped(self, last: int = 0) -> list[Call]:
        """Forget the streams after `last` and what waits for one; return their calls."""
        calls = [self._forget(n).waiting for n in tuple(self._streams) if n > last]
        calls += [waiting for waiting, _, _ in self._queue]
        self._queue.clear()
        return calls

    def _reset(self, number: int, code: int) -> None:
        stream = self._streams.get(number)
        if code != _REFUSED or stream is None or stream.tries >= _MOST_TRIES:
            self._drop(number, f"stream reset with code {code}")
            return
        # The server did not process it and allows a retry: its count
        # of streams falls a moment after it has answered one.
        self._forget(number)
        again = (stream.waiting, stream.request, stream.tries + 1)
        if self._streams:
            self._queue.appendleft(again)
        else:
            self._open(*again)

    def _drop(self, number: int, reason: str) -> None:
        if number in self._streams:
            stream = self._forget(number)
            if stream.headers and any(n == b"grpc-status" for n, _ in stream.headers):
                stream.waiting.answered(stream.headers, bytes(stream.content))
            else:
                stream.waiting.lost(reason)
            self._advance()

    def _keep(self, number: int, stream: Stream, more: int) -> bool:
        """Return True if `more` bytes of an answer may be kept; else give it up."""
        stream.kept += more
        fault = self._keeping.fault(stream.kept, more)
        if fault is not None:
            self._give_up(number, stream)
            stream.waiting.too_large(fault)
        return fault is None

    def _give_up(self, number: int, stream: Stream) -> None:
        """Read the answer on: Triton before 2.57 can crash if it is cancelled midway."""
        is_read_on = not stream.unsent and not stream.given_up
        if is_read_on and self.given_up < _MOST_GIVEN_UP:
            self.given_up += 1
            stream.given_up, stream.tries = True, _MOST_TRIES
            stream.empty(self._keeping)
            return
        self._forget(number)
        self._write(frame(_RESET, 0, number, WORD.pack(_CANCEL)))
        self._advance()

    def _forget(self, number: int) -> Stream:
        stream = self._streams.pop(number)
        self.given_up -= stream.given_up
        stream.empty(self._keeping, stream.content)
        return stream

    def _end(self, number: int, stream: Stream) -> None:
        self._forget(number)
        if stream.unsent:
            # It answered before it had received all.
            self._write(frame(_RESET, 0, number, WORD.pack(0)))
        if not stream.given_up:
            stream.waiting.answered(stream.headers, bytes(stream.content))
        self._advance()
        if not self.usable and not self._streams:
            self._transport.close()
