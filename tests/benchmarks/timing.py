"""The one way to time calls that compute: CPU time of this thread."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def cpu_seconds(call: Callable[[], object], repeats: int) -> list[float]:
    """CPU seconds of each of `repeats` calls, after one that is not counted."""
    call()
    spent = []
    for _ in range(repeats):
        gc.collect()
        started = time.thread_time()
        call()
        spent.append(time.thread_time() - started)
    return spent
