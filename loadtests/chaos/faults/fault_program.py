"""The program that keeps a fault up, run as `python -m` by `primitives.programs`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from exporter.errors import TritonwatchError
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.primitives.process_refs import FAILED, READY, ProcessRef


def main(arguments: list[str]) -> int:
    """Run the fault: `arguments` has one JSON object, made by `start`."""
    task = json.loads(arguments[0])
    # An undo may have searched before exec gave this process its token; that is only
    # possible if the starter was killed meanwhile.
    if not task["starter"] or not ProcessRef.from_record(task["starter"]).alive:
        return 1
    signal.setitimer(signal.ITIMER_REAL, task["longest_seconds"])
    try:
        FAULTS[task["kind"]].work(task["record"], _ready)  # type: ignore[attr-defined]
    except (TritonwatchError, OSError) as error:
        with contextlib.suppress(OSError):
            os.write(1, f"{FAILED}{error}\n".encode())
        return 1
    return 0


def _ready() -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{READY}\n".encode())
    # Later output has no reader.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
