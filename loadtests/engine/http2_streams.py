"""HTTP/2 frames and open streams: encoding, and validation of received frames."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.engine.header_blocks import Header

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


class Answered(Protocol):
    """Receives the answer to one request."""

    @property
    def path(self) -> bytes | None:
        """Path of a method whose answer is processed in parts; None for others."""
        ...

    def receive_part(self, content: bytes | bytearray) -> bytes:
        """Called with the data of a stream so far; returns the part to keep."""
        ...

    def answered(self, headers: Sequence[Header], content: bytes) -> None:
        """Called with the complete answer: headers and trailers, and the data."""
        ...

    def too_large(self, fault: str) -> None:
        """Called when an answer exceeds the size limit."""
        ...

    def not_processed(self, reason: str) -> None:
        """Called when the server did not process it: it may be sent on another connection."""
        ...

    def lost(self, reason: str) -> None:
        """Called when no answer will come."""
        ...


@dataclass(slots=True)
class Stream:
    """One request and the received part of its answer."""

    waiting: Answered
    request: bytes
    tries: int
    unsent: memoryview = _NOTHING
    window: int = 0
    headers: tuple[Header, ...] = ()
    content: bytes | bytearray = b""
    kept: int = 0
    """Bytes that have been counted."""
