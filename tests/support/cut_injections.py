"""Injects faults in processes of their own, which a test may kill at any moment.

Run as a script it is what forks them: a process with everything imported already, so that
an injection begins at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter

from loadtests.chaos.faults import AnyFault
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.faults import Fault


class Injector:
    """A process that injects on demand, each time in a child of its own."""

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
        self._process.wait(20)
        self._process.stdout.close()

    def begin(self, fault: Fault, record: dict[str, Any]) -> ProcessRef:
        """Begin to inject it; the process that does."""
        told = json.dumps([fault.model_dump(), record])
        self._process.stdin.write(f"{told}\n")
        self._process.stdin.flush()
        return ProcessRef.from_record(json.loads(self._process.stdout.readline()))


def main() -> None:
    known = TypeAdapter(AnyFault)
    # Children are reaped by the kernel.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        settings, record = json.loads(line)
        fault = known.validate_python(settings)
        go, start = os.pipe()
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Not before its pid is told.
            os.close(start)
            os.read(go, 1)
            fault.inject(record)
            os._exit(0)
        print(json.dumps(ProcessRef.of(pid).to_record()), flush=True)
        os.close(start)
        os.close(go)


if __name__ == "__main__":
    main()
