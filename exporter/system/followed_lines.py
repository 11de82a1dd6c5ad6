"""Follows a growing log file through rotation, truncation and restarts.

A rotated file is still read for a while, since its writer may not have opened the new one
yet. Memory is bounded by one chunk, whatever the file holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK_BYTES: Final = 1 << 20
MAX_LINE_BYTES: Final = 16 << 10
LINGER_SECONDS: Final = 60.0
"""Seconds for which a rotated file is still read after it last grew."""
MAX_ROTATED: Final = 4
"""Limit of rotated files read at once."""
_KEEP_SIZE_PUNCH_HOLE: Final = 1 | 2
"""FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE of linux/falloc.h."""


@dataclass(slots=True)
class _Opened:
    """A file being read. `skipping`: within a line that is not to be read."""

    handle: int
    identity: tuple[int, int]
    position: int = 0
    partial: bytes = b""
    skipping: bool = False
    grew_at: float = 0.0


@dataclass(slots=True)
class FollowCounts:
    """Counts of data that could not be read."""

    too_long: int = 0
    """Lines longer than MAX_LINE_BYTES."""
    truncated: int = 0
    """Times the file became shorter: lines since the last poll are lost."""


@dataclass(slots=True)
class LineFollower:
    """Reads every line once that is appended after the first poll. Not thread-safe.

    Args:
        path: the file; it may be missing at first.
        clock: monotonic seconds.
        owner: give the disk space of what was read back to the file system.
    """

    path: Path
    clock: Callable[[], float]
    owner: bool = False
    counts: FollowCounts = field(default_factory=FollowCounts)
    _current: _Opened | None = None
    _rotated: list[_Opened] = field(default_factory=list)
    _polled: bool = False
    _missing_since: float | None = None

    def poll(self, until: float, most_bytes: int) -> Iterator[list[bytes]]:
        """New lines, without their ends, a chunk at a time; the rest is left for the next poll.

        Args:
            until: monotonic seconds at which to stop.
            most_bytes: about how much to read.

        Raises:
            SourceError: no such file, also after a rotation, or it cannot be read. What is
                left of the one before is yielded first.
        """
        problem = self._open_latest()
        left = most_bytes
        for opened in (*self._rotated, self._current):
            while opened is not None and left > 0 and self.clock() < until:
                chunk = self._chunk(opened)
                if not chunk:
                    break
                left -= len(chunk)
                yield self._lines(opened, chunk)
        self._close_quiet()
        if problem:
            raise SourceError(f"{self.path} cannot be read: {problem}")

    def close(self) -> None:
        """Close every file."""
        for opened in (*self._rotated, self._current):
            if opened is not None:
                os.close(opened.handle)
        self._rotated, self._current = [], None

    def _open_latest(self) -> str:
        """Open the file by this name, unless it is the one being read; return the error.

        While it is rotated, it may be missing for a moment.
        """
        first, self._polled = not self._polled, True
        try:
            found = self.path.stat()
            if self._current and self._current.identity == _identity(found):
                return ""
            # A pipe or a device would never end, and might block.
            if not stat.S_ISREG(found.st_mode):
                raise SourceError(f"{self.path} is not a file; want an access log")
            mode = os.O_RDWR if self.owner else os.O_RDONLY
            handle = os.open(self.path, mode | os.O_NONBLOCK)
        except FileNotFoundError as error:
            now = self.clock()
            since = self._missing_since = self._missing_since or now
            rotates = self._current is not None and now - since < LINGER_SECONDS
            return "" if rotates else str(error.strerror)
        except OSError as error:
            return str(error.strerror)
        self._missing_since = None
        status = os.fstat(handle)
        opened = _Opened(handle, _identity(status), grew_at=self.clock())
        if first and status.st_size:
            # It was written before us: a restart must not count it again.
            opened.position = status.st_size
            opened.skipping = os.pread(handle, 1, status.st_size - 1) != b"\n"
        if self._current is not None:
            # Its writer may go on for a while, however quiet it was before.
            self._current.grew_at = self.clock()
            self._rotated.append(self._current)
        self._current = opened
        return ""

    def _chunk(self, opened: _Opened) -> bytes:
        if os.fstat(opened.handle).st_size < opened.position:
            self.counts.truncated += 1
            opened.position, opened.partial, opened.skipping = 0, b"", False
        try:
            chunk = os.pread(opened.handle, CHUNK_BYTES, opened.position)
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror}") from None
        if chunk:
            opened.position += len(chunk)
            opened.grew_at = self.clock()
            if self.owner:
                _give_back(opened.handle, opened.position)
        return chunk

    def _lines(self, opened: _Opened, chunk: bytes) -> list[bytes]:
        *lines, rest = (opened.partial + chunk).split(b"\n")
        if opened.skipping and lines:
            lines.pop(0)
            opened.skipping = False
        whole = [line for line in lines if len(line) <= MAX_LINE_BYTES]
        self.counts.too_long += len(lines) - len(whole)
        if opened.skipping:
            rest = b""
        elif len(rest) > MAX_LINE_BYTES:
            self.counts.too_long += 1
            opened.skipping, rest = True, b""
        opened.partial = rest
        return whole

    def _close_quiet(self) -> None:
        """Close rotated files that were read and not written to for a while, or too many."""
        oldest = self.clock() - LINGER_SECONDS
        kept = [
            opened
            for opened in self._rotated
            if opened.grew_at > oldest
            or os.fstat(opened.handle).st_size > opened.position
        ]
        kept = kept[-MAX_ROTATED:]
        for opened in self._rotated:
            if opened not in kept:
                os.close(opened.handle)
        self._rotated = kept


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _give_back(handle: int, end: int) -> None:
    """Free the blocks before `end`; the file keeps its size, so its writer sees nothing."""
    # Not every C library and file system can; then the file grows as it would without us.
    fallocate = getattr(ctypes.CDLL(None), "fallocate64", None)
    if fallocate is not None:
        with contextlib.suppress(OSError):
            fallocate(
                handle, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(end)
            )
