"""HTTP/2 header blocks by the package `hpack`, with a cache for repeated ones.

Each request of a connection has the headers of the one before, and each answer mostly,
too: while a table stays as it is, the same block means the same headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hpack

if TYPE_CHECKING:
    from collections.abc import Iterable

Header = tuple[bytes, bytes]
TABLE_BYTES: Final = 4096
"""Size of the dynamic table in both directions: HTTP/2's default."""
_ENTRY_BYTES: Final = 32
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 1024


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
