"""Keeps resident memory at what is in use.

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
_COLLECT_AFTER: Final = (700, 2, 2)
"""Allocations, then collections of the younger generation. By default the oldest one's
turn comes in twenty minutes: a sidecar does little."""


def start_with_small_caches() -> None:
    """Become this program anew, told that its threads shall keep next to nothing freed.

    By default every thread of glibc's malloc keeps seven freed pieces of each of 64
    sizes for itself, up to 240 kB. Two dozen threads of which each does everything now
    and then fill that for hours, which looks like a leak. How many is read from the
    environment when a process starts, and never again: the process, which stays the
    same to whoever watches it, starts over. Nothing without glibc, or where it was
    told already.
    """
    told = os.environ.get(_TUNABLES, "")
    is_glibc = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    if not is_glibc or _THREAD_CACHE in told or not sys.executable:
        return
    wanted = f"{_THREAD_CACHE}={_CACHED}"
    environment = {**os.environ, _TUNABLES: f"{told}:{wanted}" if told else wanted}
    # By its path: by its bare name it might be another Python than that of this venv.
    command = [sys.executable, *sys.orig_argv[1:]]
    with contextlib.suppress(OSError):  # where none may be executed: as it is, then
        os.execve(sys.executable, command, environment)  # noqa: S606 - ourselves


def use_few_arenas() -> None:
    """Have all threads allocate from two arenas, which give back what is free.

    glibc would make up to eight for each core, and every one keeps what was freed in it
    for its own threads. Only before threads are started; nothing without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def settle() -> None:
    """Look no more at what the start has made: it stays as long as the process.

    Python collects its oldest generation when a quarter has come to it. Of all modules
    that is so much that cycles would lie about for minutes, and then hold up everything
    for a tenth of a second; of what is made from now on it is little, and soon.
    """
    gc.collect()
    gc.freeze()
    # It remembers what a quarter is of from the last time.
    gc.collect()
    gc.set_threshold(*_COLLECT_AFTER)
