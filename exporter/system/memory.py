"""Memory of this process: kept to what is in use, and compared with a limit.

Few arenas, and garbage that goes soon. The limit is the configured one, or three quarters of
what the control group allows: beyond the group's own limit the kernel kills the process. Read
in both versions of control groups, for every group from that of this process up to the one
that is mounted.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporter.system import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# mallopt(3); glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
_TRIM_BYTES: Final = 128 * 1024
_COLLECT_AFTER: Final = (700, 2, 2)
"""Allocations, then collections of the younger generation. By default the oldest one's
turn comes in twenty minutes: a sidecar does little."""


def use_few_arenas() -> None:
    """Let all threads allocate from two arenas, which return free memory.

    glibc would make up to eight for each core, and every one keeps what was freed in it
    for its own threads. Only before threads are started; nothing without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def settle() -> None:
    """Exclude start-up objects from garbage collection: they stay as long as the process.

    Python collects its oldest generation when a quarter has come to it. With the
    objects of all modules, garbage would stay for minutes, and a collection would then
    stop the process for a tenth of a second. With later objects only, collections are
    short and frequent.
    """
    gc.collect()
    gc.freeze()
    # It remembers what a quarter is of from the last time.
    gc.collect()
    gc.set_threshold(*_COLLECT_AFTER)


SHARE: Final = 0.75
"""Share of the control group's limit. The rest is for bodies accepted before."""
_READ_SECONDS: Final = 0.1
_TRIM_SECONDS: Final = 1.0
_TIDY_SECONDS: Final = 15.0
_NOTICED_BYTES: Final = 8 << 20
"""Growth since the smallest size that makes trimming worth its while."""
_UNLIMITED: Final = 1 << 60
"""The first version of control groups has no word for it, but a number this large."""
_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")


class MemoryBudget:
    """Compares resident memory with a limit; for any thread.

    It is the lower one of the configured limit and a share of the control group's.
    """

    def __init__(
        self,
        configured: int | None,
        *,
        group: Callable[[], int | None] = lambda: None,
        resident: Callable[[], int] | None = None,
        trim: Callable[[], object] | None = None,
        collect: Callable[[], object] = gc.collect,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configured = configured
        self._group = group
        self.limit_bytes = self._limit()
        self._resident = resident or _own_resident_bytes
        self._trim = trim or give_back
        self._collect = collect
        self._clock = clock
        self._lock = threading.Lock()
        self._smallest = self._resident()
        self._exceeded = False
        self._read_at = self._trimmed_at = self._tidied_at = clock()

    @property
    def exceeded(self) -> bool:
        """True if more is resident than the limit, after free memory was released.

        Asked for each body, in the event loop: garbage is left to `tidy`.
        """
        limit = self.limit_bytes
        if limit is None:
            return False
        now = self._clock()
        with self._lock:
            if now - self._read_at >= _READ_SECONDS:
                self._read_at = now
                self._exceeded = self._resident() > limit
                if self._exceeded and now - self._trimmed_at >= _TRIM_SECONDS:
                    self._trimmed_at = now
                    self._trim()
                    self._exceeded = self._resident() > limit
            return self._exceeded

    def tidy(self) -> None:
        """Release memory that was freed since the process was smallest; call it regularly.

        Connections that have ended are garbage in cycles. After a flood Python collects
        its oldest generation late, and few of them on each page keep all the memory
        between. Takes tens of milliseconds: not for the event loop.
        """
        # A pod may be resized while it runs.
        self.limit_bytes = self._limit()
        now = self._clock()
        with self._lock:
            resident = self._resident()
            self._smallest = min(self._smallest, resident)
            grown = resident - self._smallest
            if grown <= _NOTICED_BYTES or now - self._tidied_at < _TIDY_SECONDS:
                return
            self._tidied_at = now
        self._collect()
        self._trim()

    def _limit(self) -> int | None:
        group = self._group()
        limits = [self._configured, None if group is None else int(SHARE * group)]
        return min((each for each in limits if each is not None), default=None)


def _own_resident_bytes() -> int:
    return processes.resident_bytes(os.getpid()) or 0


def give_back() -> None:
    """Return free memory of malloc's to the kernel; nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def group_limit(groups: Path = _OWN_GROUPS, root: Path = _ROOT) -> int | None:
    """The lowest limit of any control group this process is in, in bytes."""
    try:
        lines = groups.read_text("utf-8").splitlines()
    except OSError:
        return None
    found = [each for line in lines for each in _limits(line, root)]
    return min(found, default=None)


def _limits(line: str, root: Path) -> Iterator[int]:
    """Yield the limits for a line of /proc/self/cgroup: "number:controllers:path"."""
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers == "":
        mounts, name = (root, root / "unified"), "memory.max"
    elif "memory" in controllers.split(","):
        mounts, name = (root / "memory", root / controllers), "memory.limit_in_bytes"
    else:
        return
    own = Path(path.lstrip("/"))
    # In a container the path may be the host's, and the mount is the group itself.
    for group in (own, *own.parents):
        for mount in mounts:
            try:
                limit = int((mount / group / name).read_text("ascii"))
            except (OSError, ValueError):  # there is none, or it is "max"
                continue
            if limit < _UNLIMITED:
                yield limit
