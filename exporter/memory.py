"""Keeps resident memory at what is in use: few arenas, and garbage that goes soon."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

# mallopt(3); glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
_TRIM_BYTES: Final = 128 * 1024
_COLLECT_AFTER: Final = (700, 2, 2)
"""Allocations, then collections of the younger generation. By default the oldest one's
turn comes in twenty minutes: a sidecar does little."""


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
