"""The frames of an HTTP/2 client: their number, and the size of its header blocks.

grpc's server limits neither: it keeps an endless header block in memory, and frames
without content cost it more than their sender.
"""

from __future__ import annotations

from typing import Final

from exporter.network.connections import MAX_HEAD_BYTES

_PREFACE_BYTES: Final = 24
_FRAME_HEAD_BYTES: Final = 9
_HEADERS: Final = 1
_CONTINUATION: Final = 9
_END_HEADERS: Final = 4


class LongHeadersError(Exception):
    """A header block is longer than `MAX_HEAD_BYTES`."""


class FrameCounter:
    """Follows the heads of frames in a client's data, and keeps no content (RFC 9113, 4.1)."""

    def __init__(self) -> None:
        self._head = b""
        """The beginning of a frame's head whose end has not arrived."""
        self._ignored_bytes = _PREFACE_BYTES
        """Bytes until the next frame's head."""
        self._block_bytes = 0
        """Bytes of the unfinished header block, with the heads of its frames."""

    def count(self, data: bytes) -> int:
        """Return the number of frames whose heads end in these data, the next ones.

        Raises:
            LongHeadersError: a header block is too long.
        """
        if self._ignored_bytes >= len(data):
            self._ignored_bytes -= len(data)
            return 0
        frames, position, end = 0, self._ignored_bytes, len(data)
        if self._head:
            data, position = self._head + data, 0
            end, self._head = len(data), b""
        while position + _FRAME_HEAD_BYTES <= end:
            frames += 1
            size = int.from_bytes(data[position : position + 3], "big")
            kind = data[position + 3]
            if kind in (_HEADERS, _CONTINUATION):
                self._count_headers(size, data[position + 4])
            position += _FRAME_HEAD_BYTES + size
        self._ignored_bytes = max(0, position - end)
        self._head = data[position:]
        return frames

    def _count_headers(self, size: int, flags: int) -> None:
        self._block_bytes += _FRAME_HEAD_BYTES + size
        if self._block_bytes > MAX_HEAD_BYTES:
            raise LongHeadersError
        if flags & _END_HEADERS:
            self._block_bytes = 0
