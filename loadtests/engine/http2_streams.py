"""Open streams of an HTTP/2 connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.engine.hpack import Header

_NOTHING: Final = memoryview(b"")


class Answered(Protocol):
    """Who waits for the answer to one request."""

    def answered(self, headers: Sequence[Header], content: bytes) -> None:
        """All of it came: the headers and trailers, and the data."""
        ...

    def spoilt(self, fault: str) -> None:
        """What comes is more than is kept of an answer."""
        ...

    def unheard(self, reason: str) -> None:
        """The server did nothing with it: it may be sent on another connection."""
        ...

    def broken(self, reason: str) -> None:
        """It will not come."""
        ...


@dataclass(slots=True)
class Stream:
    """One request and what has come of its answer."""

    waiting: Answered
    request: bytes
    tries: int
    unsent: memoryview = _NOTHING
    window: int = 0
    headers: tuple[Header, ...] = ()
    content: bytes | bytearray = b""
    kept: int = 0
    """Bytes that have been counted."""
