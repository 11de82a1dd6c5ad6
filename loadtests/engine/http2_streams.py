"""HTTP/2 frames, open streams and header blocks.

Each request of a connection has the headers of the one before, and each answer mostly,
too: while a table stays as it is, the same block means the same headers. They are cached.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import hpack

from loadtests.engine.senders import joined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadtests.engine.grpc_calls import Call
    from loadtests.engine.senders import Keeping

HEAD: Final = struct.Struct(">BHBBI")
"""Length in two parts, type, flags, stream."""
SETTING: Final = struct.Struct(">HI")
WORD: Final = struct.Struct(">I")
LARGEST_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
_SETTINGS, _WINDOW = 4, 8
_ENABLE_PUSH, _INITIAL_WINDOW = 2, 4
_PADDED: Final = 8
_NOTHING: Final = memoryview(b"")
Header = tuple[bytes, bytes]
TABLE_BYTES: Final = 4096
"""Size of the dynamic table in both directions: HTTP/2's default."""
_ENTRY_BYTES: Final = 32
_LARGEST_BLOCK: Final = 1 << 16
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 1024


class ProtocolViolation(Exception):  # noqa: N818 - what the other side did
    """The peer broke the protocol."""


def frame(kind: int, flags: int, number: int, content: bytes | memoryview) -> bytes:
    """A frame; the content has less than 2^24 bytes."""
    size = len(content)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, number) + content


def unpadded(flags: int, content: bytes) -> bytes:
    """Return the content of a frame without its padding."""
    if not flags & _PADDED:
        return content
    padding = content[0]
    if padding >= len(content):
        raise ProtocolViolation("more padding than content")
    return content[1 : len(content) - padding]


def within(value: int, least: int, most: int, what: str = "a setting of {}") -> int:
    """Return the value of a setting, or another number.

    Raises:
        ProtocolViolation: the RFC does not allow it.
    """
    if not least <= value <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise ProtocolViolation(f"{what.format(value)}; want {wanted}")
    return value


HELLO: Final = b"".join(
    (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        frame(
            _SETTINGS,
            0,
            0,
            SETTING.pack(_ENABLE_PUSH, 0)
            + SETTING.pack(_INITIAL_WINDOW, LARGEST_WINDOW),
        ),
        frame(_WINDOW, 0, 0, WORD.pack(LARGEST_WINDOW - DEFAULT_WINDOW)),
    )
)
"""First bytes of a client: no pushes, and the largest windows."""


@dataclass(slots=True)
class Stream:
    """One request and the received part of its answer."""

    waiting: Call
    request: bytes
    tries: int
    unsent: memoryview = _NOTHING
    window: int = 0
    headers: tuple[Header, ...] = ()
    content: bytes | bytearray = b""
    kept: int = 0
    """Bytes that have been counted."""
    given_up: bool = False
    """True if the answer is read to its end, and dropped."""

    def empty(self, keeping: Keeping, rest: bytes | bytearray = b"") -> None:
        """Keep no more of the answer than this rest, which need not be counted."""
        keeping.drop(self.kept)
        self.content, self.kept = rest, 0


def table_bytes(headers: Iterable[Header]) -> int:
    """Return the size of the headers in a table."""
    return sum(len(name) + len(value) + _ENTRY_BYTES for name, value in headers)


class SameHeaders:
    """The headers of every request of a connection."""

    def __init__(self, headers: Iterable[Header]) -> None:
        self._headers = tuple(headers)
        self._encoder = hpack.Encoder()
        self._known: dict[bytes | None, bytes] = {}

    def allow(self, table: int) -> None:
        """Set the size of the peer's table, in bytes."""
        self._encoder.header_table_size = min(table, TABLE_BYTES)
        self._known.clear()

    def block(self, path: bytes | None = None) -> bytes:
        """Return the header block of the next request, which may go to another path."""
        known = self._known.get(path)
        if known is not None:
            return known
        headers = [
            (name, path if path and name == b":path" else value)
            for name, value in self._headers
        ]
        before = tuple(self._encoder.header_table.dynamic_entries)
        block = self._encoder.encode(headers, huffman=False)
        if tuple(self._encoder.header_table.dynamic_entries) == before:
            self._known[path] = block
        else:
            self._known.clear()
        return block


class Decoder:
    """Reads one connection's blocks, in their order."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder()
        self._cache: dict[bytes, tuple[Header, ...]] = {}
        self.begun: tuple[int, int, bytes | bytearray] | None = None
        """Block that is to be continued: stream, flag of its end, and content."""

    def continued(self, number: int, content: bytes) -> tuple[int, bytes | bytearray]:
        """Return the flag of the stream's end, and the block with this continuation."""
        if self.begun is None or self.begun[0] != number:
            raise ProtocolViolation("a continuation without a header block")
        _, ends, before = self.begun
        if len(before) + len(content) > _LARGEST_BLOCK:
            raise ProtocolViolation("a header block without end")
        self.begun = None
        return ends, joined(before, content)

    def decode(self, block: bytes) -> tuple[Header, ...]:
        """Return the headers of a block.

        Raises:
            ValueError: it is not a header block.
        """
        known = self._cache.get(block)
        if known is not None:
            return known
        before = tuple(self._decoder.header_table.dynamic_entries)
        try:
            headers = tuple(self._decoder.decode(block, raw=True))
        except hpack.HPACKError as error:
            raise ValueError(f"not a header block: {error}") from None
        if tuple(self._decoder.header_table.dynamic_entries) != before:
            self._cache.clear()
        elif len(self._cache) < _MAX_CACHED and len(block) <= _MAX_CACHED_BYTES:
            self._cache[block] = headers
        return headers
