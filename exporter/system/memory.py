"""Limits resident memory to the memory in use.

Few arenas, threads that hoard nothing of them, and garbage that goes soon.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from typing import Final

# mallopt(3); glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
_TRIM_BYTES: Final = 128 * 1024
_TUNABLES: Final = "GLIBC_TUNABLES"
_THREAD_CACHE: Final = "glibc.malloc.tcache_count"
_CACHED: Final = 1
_TRIED: Final = "TRITONWATCH_EXECUTED_AGAIN"
_COLLECT_AFTER: Final = (700, 2, 2)
"""Allocations, then collections of the younger generation. By default the oldest one's
turn comes in twenty minutes: a sidecar does little."""


def start_with_small_caches() -> None:
    """Execute this program again, in place, with small thread caches in malloc.

    By default each thread of glibc's malloc caches seven freed pieces of each of 64
    sizes, up to 240 kB. Two dozen threads with varied work fill their caches over
    hours, which looks like a leak. glibc reads the limit from the environment when a
    process starts and at no other time. Does nothing without glibc, or where the limit
    is set already, or after one try: in a process with more rights than its user has
    (file capabilities, setuid) glibc removes the variable.
    """
    tunables = os.environ.get(_TUNABLES, "")
    # execve keeps the pid, so a variable that a parent process left cannot match.
    tried = os.environ.pop(_TRIED, "") == str(os.getpid())
    is_glibc = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    if tried or not is_glibc or _THREAD_CACHE in tunables or not sys.executable:
        return
    wanted = f"{_THREAD_CACHE}={_CACHED}"
    environment = {
        **os.environ,
        _TUNABLES: f"{tunables}:{wanted}" if tunables else wanted,
        _TRIED: str(os.getpid()),
    }
    # By its path: by its bare name it might be another Python than that of this venv.
    command = [sys.executable, *sys.orig_argv[1:]]
    with contextlib.suppress(OSError):  # where executing is forbidden, go on as it is
        os.execve(sys.executable, command, environment)  # noqa: S606 - ourselves


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
