"""Little that becomes much: compressed spaces, made without compressing them all."""

from __future__ import annotations

import struct
import zlib

MEBIBYTE = b" " * (1 << 20)


def gzip_bomb(mebibytes: int) -> bytes:
    """Spaces as one sound gzip member (RFC 1952)."""
    total = 0
    for _ in range(mebibytes):
        total = zlib.crc32(MEBIBYTE, total)
    tail = struct.pack("<II", total, (mebibytes << 20) % (1 << 32))
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + _deflated(mebibytes) + tail


def zlib_bomb(mebibytes: int) -> bytes:
    """Spaces as a sound zlib stream (RFC 1950)."""
    total = 1
    for _ in range(mebibytes):
        total = zlib.adler32(MEBIBYTE, total)
    return b"\x78\x9c" + _deflated(mebibytes) + struct.pack(">I", total)


def _deflated(mebibytes: int) -> bytes:
    # After a full flush nothing refers back: what compressed once may be repeated.
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * mebibytes + b"\x03\x00"
