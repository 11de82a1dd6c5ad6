"""Injects a fault in a process that is killed at a chosen moment, as a runner may be.

with KilledInjections() as killed:
    seconds = killed.inject("partition", record)            # to the end
    killed.inject("partition", record, after_seconds=0.01)  # SIGKILL then
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Self


class KilledInjections:
    """Forks each injection from one process that has imported all faults."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)

    def inject(
        self, kind: str, record: dict[str, Any], after_seconds: float | None = None
    ) -> float:
        """How long the injection ran."""
        command = {"kind": kind, "record": record, "after_seconds": after_seconds}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _injected(kind: str, record: dict[str, Any], after_seconds: float | None) -> float:
    held, holds = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            FAULTS[kind]().inject(record)
        finally:
            os._exit(0)
    os.close(holds)
    if after_seconds is not None:
        time.sleep(after_seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    seconds = time.perf_counter() - started
    # As the watchdog: the pipe ends when nothing between fork and exec holds it.
    select.select([held], [], [], 5.0)
    os.close(held)
    return seconds


if __name__ == "__main__":
    from loadtests.chaos.faults import FAULTS

    for line in sys.stdin:
        print(json.dumps(_injected(**json.loads(line))), flush=True)
