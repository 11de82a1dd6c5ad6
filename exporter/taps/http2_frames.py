"""The frames of an HTTP/2 client: their number, and limits on its header blocks.

grpc's server has no such limits: it keeps an endless block in memory, and thousands of
headers of one byte each cost it far more memory and time than their sender.
"""

from __future__ import annotations

from typing import Final

from exporter.network.connections import MAX_HEAD_BYTES

MAX_HEADERS: Final = 300
"""Headers of one call; grpc's server accepts no more than about 270 by its limit on bytes."""
_PREFACE_BYTES: Final = 24
_FRAME_HEAD_BYTES: Final = 9
_DATA: Final = 0
_HEADERS: Final = 1
_CONTINUATION: Final = 9
_END_HEADERS: Final = 0x04
_PADDED: Final = 0x08
_PRIORITY: Final = 0x20
_PRIORITY_BYTES: Final = 5
_SIZE_UPDATE: Final = 0x20
_MANY_FRAMES: Final = 1_000
_OTHERS_PER_FRAME: Final = 4
"""Frames without content of a call that are accepted for each one with such, after the
first `_MANY_FRAMES`: a call by grpc has 2 with and 2 without, however short it is.
"""
_PREFIX_BYTES: Final = 5
"""Of each gRPC message; a frame with less is counted as one without content."""
_INTEGER_BYTES: Final = 4
"""The longest integer that is read, after its prefix."""


class FramesError(Exception):
    """A header block is too long, has too many headers or cannot be read, or frames carry no calls."""


class FrameReader:
    """Follows the frames in a client's data (RFC 9113, 4.1), and keeps headers only."""

    def __init__(self) -> None:
        self._others_left = _MANY_FRAMES
        """Frames without content of a call that are accepted now."""
        self._head = b""
        """The beginning of a frame's head whose end has not arrived."""
        self._rest_bytes = _PREFACE_BYTES
        """Bytes until the next frame's head."""
        self._headers: bytearray | None = None
        """Content so far of a frame with headers; None within any other frame."""
        self._flags = 0
        self._block = bytearray()
        self._block_bytes = 0
        """Size of the unfinished header block, with the heads of its frames."""

    def read(self, data: bytes) -> int:
        """Return the number of frames whose heads end in these data, the next ones.

        Raises:
            FramesError: see there; nothing more is to be read.
        """
        frames, position = 0, 0
        if self._head:
            data, self._head = self._head + data, b""
        while True:
            end = position + self._rest_bytes
            if self._headers is not None:
                self._headers += data[position:end]
            if end > len(data):
                self._rest_bytes = end - len(data)
                return frames
            if self._headers is not None:
                self._end_frame(self._headers)
            position, self._rest_bytes = end + _FRAME_HEAD_BYTES, 0
            if position > len(data):
                self._head = data[end:]
                return frames
            frames += 1
            self._begin_frame(data[end:position])

    def _begin_frame(self, head: bytes) -> None:
        self._rest_bytes = int.from_bytes(head[:3], "big")
        has_content = self._rest_bytes >= _PREFIX_BYTES
        if has_content and head[3] in (_DATA, _HEADERS, _CONTINUATION):
            self._others_left += _OTHERS_PER_FRAME
        else:
            self._others_left -= 1
        if self._others_left < 0:
            raise FramesError
        if head[3] not in (_HEADERS, _CONTINUATION):
            return
        self._headers = bytearray()
        self._flags = head[4] if head[3] == _HEADERS else head[4] & _END_HEADERS
        self._block_bytes += len(head) + self._rest_bytes
        if self._block_bytes > MAX_HEAD_BYTES:
            raise FramesError

    def _end_frame(self, content: bytearray) -> None:
        self._headers = None
        if self._flags & _PADDED:
            padding = content.pop(0) if content else 0
            del content[max(0, len(content) - padding) :]
        if self._flags & _PRIORITY:
            del content[:_PRIORITY_BYTES]
        self._block += content
        if self._flags & _END_HEADERS:
            number_of_headers(self._block)
            self._block.clear()
            self._block_bytes = 0


def number_of_headers(block: bytes | bytearray) -> int:
    """Return the number of headers in a block, and updates of the table's size (RFC 7541, 6).

    Raises:
        FramesError: the block has more than `MAX_HEADERS` headers, a number in it is too
            long, or it ends within a number or a text.
    """
    position = number = 0
    while position < len(block):
        number += 1
        if number > MAX_HEADERS:
            raise FramesError
        first = block[position]
        if first & 0x80:
            _, position = _integer(block, position, 0x7F)
        elif first & 0xE0 == _SIZE_UPDATE:
            _, position = _integer(block, position, 0x1F)
        else:
            name, position = _integer(block, position, 0x3F if first & 0x40 else 0x0F)
            for _ in range(1 if name else 2):
                size, position = _integer(block, position, 0x7F)
                position += size
    if position > len(block):
        raise FramesError
    return number


def _integer(block: bytes | bytearray, position: int, prefix: int) -> tuple[int, int]:
    """Return the integer there, and the position after it (RFC 7541, 5.1)."""
    try:
        value = block[position] & prefix
        if value < prefix:
            return value, position + 1
        for index in range(_INTEGER_BYTES):
            position += 1
            value += (block[position] & 0x7F) << 7 * index
            if block[position] < 0x80:  # noqa: PLR2004 - its highest bit is unset
                return value, position + 1
    except IndexError:
        pass
    raise FramesError
