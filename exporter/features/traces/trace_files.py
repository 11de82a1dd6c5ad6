"""Follows the files Triton writes its traces to: which bytes are new, and whole.

Triton writes `file.0`, `file.1` … and never deletes one; when it restarts it begins at
0 and overwrites. So a file is known by its inode, size and time of change, never by its
name. Nothing here compares a file's time with a clock: time that matters is monotonic
and our own.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import Field

from exporter import catalogue
from exporter.errors import SourceError
from exporter.features.traces import trace_records
from exporter.samples import Sample
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = structlog.get_logger()

MAX_LISTED: Final = 100_000
_BATCH: Final = 1000
"""Entries of the folder that are listed between two readings of the clock."""
OUTCOMES: Final[tuple[str, ...]] = (
    "read",
    "truncated",
    "too_large",
    "vanished",
    "unreadable",
    "undeletable",
    "beyond_limit",
)

_DELETE: Final = (
    "delete files that were read, or set files.owner of the collector `traces`"
)

Fingerprint = tuple[int, int, int, int]
"""Device, inode, size in bytes, time of change in nanoseconds."""


class TraceFilesSettings(Settings):
    """Trace files, which Triton writes with `--trace-config triton,file=PATH`."""

    path: Path = Field(default=...)
    """The `file` of Triton's option, without the index that Triton appends."""
    owner: bool = Field(default=False)
    """Delete files that have been read. Triton never deletes them, so the disk fills up
    otherwise."""
    read_existing: bool = Field(default=False)
    """Also read files that exist at the start. `owner` implies it."""
    settle_seconds: float = Field(default=30.0, ge=0.1, le=3600)
    """A file whose JSON array was never closed is read as it is once it has not changed
    for this time."""
    max_file_bytes: int = Field(default=32 << 20, ge=1024, le=1 << 30)
    """Larger files are counted but not read."""
    max_run_bytes: int = Field(default=64 << 20, ge=1024, le=1 << 34)
    """Maximum number of bytes read per run; further files are read in the next run."""


class TraceFileFollower:
    """Reads every file once. Not thread-safe.

    Args:
        settings: what to follow.
        clock: monotonic seconds.
    """

    def __init__(
        self, settings: TraceFilesSettings, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._clock = clock
        pattern = re.escape(settings.path.name) + r"(\.[0-9]{1,19})?"
        self._pattern = re.compile(pattern)
        self._done: set[Fingerprint] = set()
        self._unreadable: set[Fingerprint] = set()
        self._open_since: dict[Fingerprint, float] = {}
        self._too_old: tuple[int, str] = (-1, "")
        """Time of change and path up to which files are beyond the limit, or were read."""
        self._is_beyond_limit = False
        """Return True if the current listing has more files than the limit."""
        self._found: list[tuple[int, str, Fingerprint]] = []
        self._listing = self._list_folder()
        self._is_slow_logged = False
        self._outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._first = not (settings.owner or settings.read_existing)

    def poll(self, seconds: float) -> Iterator[trace_records.Parsed]:
        """Yield the content of new files, oldest first.

        Listing the folder and reading files take up to `seconds` each; the next poll
        continues.

        Raises:
            SourceError: the folder cannot be listed.
        """
        listed = self._listed(self._clock() + seconds)
        if listed is None:
            return
        until = self._clock() + seconds
        present = {fingerprint for _, fingerprint in listed}
        self._done &= present
        self._unreadable &= present
        self._open_since = {
            fingerprint: since
            for fingerprint, since in self._open_since.items()
            if fingerprint in present
        }
        if self._first:
            # Whatever lies there was written before us: a restart must not count it
            # again.
            self._first = False
            self._done |= present
        left = self._settings.max_run_bytes
        for path, fingerprint in listed:
            if fingerprint in self._done:
                continue
            if left <= 0 or self._clock() >= until:
                return
            data = self._new_bytes(path, fingerprint)
            if data is not None:
                left -= len(data)
                yield trace_records.parse(data)

    def samples(self) -> Iterator[Sample]:
        """Yield the number of files by outcome."""
        for outcome, number in self._outcomes.items():
            yield Sample(catalogue.TRACE_FILES, number, (outcome,))

    def _listed(self, until: float) -> list[tuple[str, Fingerprint]] | None:
        """The files that changed last, oldest first; None if the listing is not complete.

        Older ones are counted if unread.
        """
        folder = self._settings.path.parent
        try:
            for _ in self._listing:
                if self._clock() >= until:
                    self._log_slow()
                    return None
        except OSError as error:
            self._found, self._listing = [], self._list_folder()
            raise SourceError(
                f"the trace folder {folder} cannot be listed: {error.strerror}; "
                "want the folder of Triton's --trace-config triton,file=…"
            ) from None
        found, self._found, self._listing = self._found, [], self._list_folder()
        return [(path, fingerprint) for _, path, fingerprint in sorted(found)]

    def _list_folder(self) -> Iterator[None]:
        """Fill `_found`; yield after each batch, so that a large folder takes several polls."""
        too_old, self._is_beyond_limit = self._too_old, False
        with os.scandir(self._settings.path.parent) as entries:
            for number, entry in enumerate(entries, start=1):
                if self._pattern.fullmatch(entry.name):
                    self._list(entry, too_old)
                if number % _BATCH == 0:
                    yield
        self._done |= {one[2] for one in self._found if one[:2] <= too_old}
        if not self._is_beyond_limit:
            # It would outlast a clock that was ahead.
            self._too_old = (-1, "")

    def _list(self, entry: os.DirEntry[str], too_old: tuple[int, str]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            self._outcomes["vanished"] += 1
            return
        if not stat.S_ISREG(status.st_mode):
            return
        one = (status.st_mtime_ns, entry.path, _fingerprint(status))
        if len(self._found) < MAX_LISTED:
            heapq.heappush(self._found, one)
            return
        self._is_beyond_limit = True
        oldest = heapq.heappushpop(self._found, one)
        self._too_old = max(self._too_old, oldest[:2])
        if oldest[2] in self._done or self._first or oldest[:2] <= too_old:
            return
        if not self._outcomes["beyond_limit"]:
            log.warning(
                "trace_files_beyond_limit",
                folder=str(self._settings.path.parent),
                limit=MAX_LISTED,
                lost="the files that were changed first and not read yet",
                advice=_DELETE,
            )
        self._outcomes["beyond_limit"] += 1

    def _log_slow(self) -> None:
        if not self._is_slow_logged:
            self._is_slow_logged = True
            log.warning(
                "trace_folder_large",
                folder=str(self._settings.path.parent),
                effect="it is listed in several runs, so new files are read later",
                advice=_DELETE,
            )

    def _new_bytes(self, path: str, listed: Fingerprint) -> bytes | None:
        """The content of a file that is whole, or has stopped growing."""
        if listed[2] > self._settings.max_file_bytes:
            self._finish(path, listed, "too_large")
            return None
        since = self._open_since.get(listed)
        settled = (
            since is not None and self._clock() - since >= self._settings.settle_seconds
        )
        if since is not None and not settled:
            return None
        data = self._read(path, listed)
        if data is None:
            return None
        whole = trace_records.is_complete(data)
        if not whole and not settled:
            self._open_since[listed] = self._clock()
            return None
        self._finish(path, listed, "read" if whole else "truncated")
        return data

    def _read(self, path: str, listed: Fingerprint) -> bytes | None:
        """The file that was listed, unless it is another by now."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                data = file.read(listed[2] + 1)
                same = _fingerprint(os.fstat(handle)) == listed
        except FileNotFoundError:
            self._outcomes["vanished"] += 1
            return None
        except OSError:
            # It may be readable at a later poll.
            if listed not in self._unreadable:
                self._unreadable.add(listed)
                self._outcomes["unreadable"] += 1
            return None
        # Written to while we read: the next poll will find it changed.
        return data if same and len(data) == listed[2] else None

    def _finish(self, path: str, fingerprint: Fingerprint, outcome: str) -> None:
        self._done.add(fingerprint)
        self._open_since.pop(fingerprint, None)
        self._outcomes[outcome] += 1
        if not self._settings.owner or outcome == "too_large":
            return
        try:
            # Overwritten in the meantime, it holds what was not read yet.
            if _fingerprint(os.lstat(path)) == fingerprint:
                Path(path).unlink()
        except FileNotFoundError:
            pass
        except OSError:
            self._outcomes["undeletable"] += 1


def _fingerprint(status: os.stat_result) -> Fingerprint:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
