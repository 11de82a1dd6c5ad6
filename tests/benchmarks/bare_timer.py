"""What a sender cannot do better than here: a thread that only waits, and is first in line.

    python tests/benchmarks/bare_timer.py RATE SECONDS SEED

Prints the coefficient of variation of the gaps between the wakings of a thread that
sleeps until each instant of a Poisson schedule and sends nothing, at real-time priority
where it may have that. A machine that stands still for 30 ms, as a virtual one does,
bends it as it bends a sender's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time

import numpy as np

_SECONDS_TO_END = 30.0


def gap_variation(rate: float, seconds: float, seed: int) -> float:
    """Of a process of its own, over one schedule."""
    arguments = (f"{rate:g}", f"{seconds:g}", str(seed))
    told = subprocess.run(
        [sys.executable, __file__, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + _SECONDS_TO_END,
    )
    return float(told.stdout)


def _wakings(due_seconds: np.ndarray) -> np.ndarray:
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    gc.disable()
    woken = []
    start = time.perf_counter() + 0.1
    for due in (due_seconds + start).tolist():
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        woken.append(time.perf_counter())
    return np.array(woken)


def main() -> None:
    """Wait, and tell."""
    rate, seconds, seed = (float(argument) for argument in sys.argv[1:])
    rng = np.random.default_rng(int(seed))
    gaps = np.diff(_wakings(np.cumsum(rng.exponential(1 / rate, int(rate * seconds)))))
    print(gaps.std() / gaps.mean())


if __name__ == "__main__":
    main()
