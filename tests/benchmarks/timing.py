"""The one way to time calls that compute: CPU time of this thread, in turns."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def cpu_seconds(call: Callable[[], object], repeats: int) -> list[float]:
    """CPU seconds of each of `repeats` calls, after one that is not counted."""
    call()
    (spent,) = in_turns([call], repeats)
    return spent


def in_turns(calls: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """CPU seconds of each call, `repeats` times one after the other.

    Other programs do not count, and a machine that slows down does so for all of them.
    """
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, own in zip(calls, spent, strict=True):
            gc.collect()
            started = time.thread_time()
            call()
            own.append(time.thread_time() - started)
    return spent
