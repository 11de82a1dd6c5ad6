"""HTTP/2 frames: what one looks like on the wire, and what may stand in it."""

from __future__ import annotations

import struct
from typing import Final

HEAD: Final = struct.Struct(">BHBBI")
"""Length in two parts, type, flags, stream."""
_PADDED: Final = 8


class ProtocolViolation(Exception):  # noqa: N818 - what the other side did
    """The peer broke the protocol."""


def frame(kind: int, flags: int, number: int, content: bytes | memoryview) -> bytes:
    """A frame; the content has less than 2^24 bytes."""
    size = len(content)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, number) + content


def unpadded(flags: int, content: bytes) -> bytes:
    """The content of a frame without what only makes it longer."""
    if not flags & _PADDED:
        return content
    padding = content[0]
    if padding >= len(content):
        raise ProtocolViolation("more padding than content")
    return content[1 : len(content) - padding]


def within(value: int, least: int, most: int) -> int:
    """The value of a setting.

    Raises:
        ProtocolViolation: the RFC does not allow it.
    """
    if not least <= value <= most:
        raise ProtocolViolation(f"a setting of {value}; want {least} to {most}")
    return value
