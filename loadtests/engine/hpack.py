"""HPACK (RFC 7541): header blocks of HTTP/2, as a client of one service needs them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Header = tuple[bytes, bytes]
TABLE_BYTES: Final = 4096
"""Of the dynamic table, in both directions: what a peer may count on unasked."""
EMPTY_TABLE: Final = b"\x20"
"""At the beginning of a block: the dynamic table holds nothing from now on."""
_ENTRY_BYTES: Final = 32
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 1024
_MAX_INTEGER: Final = 1 << 31

# Appendix A.
_STATIC: Final[tuple[Header, ...]] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (
        line.partition(" ")
        for line in """
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
""".strip().split("\n")
    )
)

# Appendix B: bits of each symbol's code, 256 being the end of text. The code is
# canonical: by length, then by symbol.
_CODE_BITS: Final = (
    *(13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28),
    *(28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28),
    *(6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6),
    *(5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10),
    *(13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7),
    *(7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6),
    *(15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5),
    *(6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28),
    *(20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23),
    *(24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24),
    *(22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23),
    *(21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23),
    *(26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25),
    *(19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27),
    *(20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23),
    *(26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26),
    30,
)


def _codes() -> Mapping[tuple[int, int], int]:
    """(bits, code) to symbol."""
    codes: dict[tuple[int, int], int] = {}
    code = length = 0
    for bits, symbol in sorted((bits, s) for s, bits in enumerate(_CODE_BITS)):
        code <<= bits - length
        length = bits
        codes[bits, code] = symbol
        code += 1
    return codes


_SYMBOLS: Final = _codes()
_END: Final = 256
_PADDING_BITS: Final = 8


def encoded(headers: Iterable[Header]) -> bytes:
    """A block of literals that leaves the table as it is."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


def remembered(headers: Iterable[Header]) -> tuple[bytes, bytes]:
    """A block that puts the headers into an empty table, and one that then means them.

    Together they have to fit into `TABLE_BYTES`.
    """
    listed = list(headers)
    first = b"".join(b"\x40" + _text(name) + _text(value) for name, value in listed)
    newest = len(_STATIC) + 1
    places = range(newest + len(listed) - 1, newest - 1, -1)
    return first, b"".join(_integer(place, 7, 0x80) for place in places)


def table_bytes(headers: Iterable[Header]) -> int:
    """Return what the headers take in a table."""
    return sum(len(name) + len(value) + _ENTRY_BYTES for name, value in headers)


def _text(text: bytes) -> bytes:
    return _integer(len(text), 7, 0) + text


def _integer(value: int, bits: int, flags: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((flags | value,))
    value -= most
    out = bytearray((flags | most,))
    while value >= 0x80:  # noqa: PLR2004 - the continuation bit
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class SameHeaders:
    """The headers of every request of a connection, remembered where the peer does."""

    def __init__(self, headers: Iterable[Header]) -> None:
        listed = tuple(headers)
        self._literal = encoded(listed)
        self._first, self._short = remembered(listed)
        self._fit = table_bytes(listed) <= TABLE_BYTES
        self._remembers: bool | None = None

    def allow(self, table: int) -> None:
        """The peer keeps a table of so many bytes."""
        if table < TABLE_BYTES:
            # Each block says first that the table is empty, and holds all it needs.
            self._fit = False
            if not self._literal.startswith(EMPTY_TABLE):
                self._literal = EMPTY_TABLE + self._literal
        elif self._remembers is None:
            self._remembers = False

    def block(self) -> bytes:
        """Of the next request."""
        if not self._fit or self._remembers is None:
            return self._literal
        if self._remembers:
            return self._short
        self._remembers = True
        return self._first


class Decoder:
    """Reads one connection's blocks, in their order."""

    def __init__(self) -> None:
        self._table: deque[Header] = deque()
        self._bytes = 0
        self._limit = TABLE_BYTES
        self._changes = 0
        self._cache: dict[bytes, tuple[Header, ...]] = {}

    def decode(self, block: bytes) -> tuple[Header, ...]:
        """The headers of a block.

        Raises:
            ValueError: it is none.
        """
        known = self._cache.get(block)
        if known is not None:
            return known
        before = self._changes
        try:
            headers = tuple(self._read(block))
        except IndexError:
            raise ValueError("a header block ends in the middle") from None
        if self._changes != before:
            self._cache.clear()
        elif len(self._cache) < _MAX_CACHED and len(block) <= _MAX_CACHED_BYTES:
            self._cache[block] = headers
        return headers

    def _read(self, block: bytes) -> Iterable[Header]:
        position = 0
        while position < len(block):
            byte = block[position]
            if byte & 0x80:
                place, position = _read_integer(block, position, 7)
                yield self._entry(place)
            elif byte & 0x40:
                header, position = self._literal(block, position, 6)
                self._add(header)
                yield header
            elif byte & 0x20:
                size, position = _read_integer(block, position, 5)
                if size > TABLE_BYTES:
                    raise ValueError(f"a table of {size} bytes was not offered")
                self._limit = size
                self._changes += 1
                self._evict()
            else:
                header, position = self._literal(block, position, 4)
                yield header

    def _literal(self, block: bytes, position: int, bits: int) -> tuple[Header, int]:
        place, position = _read_integer(block, position, bits)
        if place:
            name = self._entry(place)[0]
        else:
            name, position = _read_text(block, position)
        value, position = _read_text(block, position)
        return (name, value), position

    def _entry(self, place: int) -> Header:
        if not 1 <= place <= len(_STATIC) + len(self._table):
            raise ValueError(f"header {place} is in no table")
        if place <= len(_STATIC):
            return _STATIC[place - 1]
        return self._table[place - len(_STATIC) - 1]

    def _add(self, header: Header) -> None:
        self._table.appendleft(header)
        self._bytes += table_bytes((header,))
        self._changes += 1
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._limit:
            self._bytes -= table_bytes((self._table.pop(),))


def _read_integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[position] & most
    position += 1
    if value < most:
        return value, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if value > _MAX_INTEGER:
            raise ValueError("a number in a header block has no end")
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position


def _read_text(block: bytes, position: int) -> tuple[bytes, int]:
    packed = block[position] & 0x80
    size, position = _read_integer(block, position, 7)
    end = position + size
    if end > len(block):
        raise ValueError("a header block ends in the middle")
    text = block[position:end]
    return (_unpacked(text) if packed else text), end


def _unpacked(text: bytes) -> bytes:
    out = bytearray()
    code = bits = 0
    for byte in text:
        for shift in range(7, -1, -1):
            code = code << 1 | byte >> shift & 1
            bits += 1
            symbol = _SYMBOLS.get((bits, code))
            if symbol is not None:
                if symbol == _END:
                    raise ValueError("a packed text holds its own end")
                out.append(symbol)
                code = bits = 0
    if bits >= _PADDING_BITS or code != (1 << bits) - 1:
        raise ValueError("a packed text ends in the middle")
    return bytes(out)
