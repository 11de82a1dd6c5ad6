"""Bounds the memory of answers that are still arriving."""

from __future__ import annotations

from typing import Final

MAX_ANSWER_BYTES: Final = 64 << 20
"""Limit of one answer."""
MAX_TOGETHER_BYTES: Final = 512 << 20
"""Limit of all answers that are being received."""
SMALL_BYTES: Final = 1024
"""An answer's first piece, where it is no larger, need not be counted."""


class Keeping:
    """Counts the bytes that one sender keeps of answers in progress."""

    def __init__(
        self,
        answer_bytes: int = MAX_ANSWER_BYTES,
        together_bytes: int = MAX_TOGETHER_BYTES,
    ) -> None:
        self._answer = answer_bytes
        self._together = together_bytes
        self.held = 0
        """Bytes of all of them."""

    def fault(self, size: int, more: int) -> str | None:
        """Count `more` bytes of an answer of now `size`; return the error above a limit."""
        self.held += more
        if size > self._answer:
            return (
                f"the answer is larger than {self._answer} B: "
                f"{size} B had come when it was given up"
            )
        if self.held > self._together:
            return (
                f"the answers under way are together larger than {self._together} B: "
                f"{size} B of this one had come when it was given up"
            )
        return None

    def drop(self, size: int) -> None:
        """Release this number of bytes of an answer."""
        self.held -= size


def joined(before: bytes | bytearray, more: bytes) -> bytes | bytearray:
    """Return both joined; a single piece is not copied, more are appended in place."""
    if not before:
        return more
    if isinstance(before, bytes):
        return bytearray(before + more)
    before += more
    return before
