"""The process that keeps a fault up.

    programs.start(record["token"], kind, record, longest_seconds=600)   # in inject()
    programs.stop(record["token"])                                       # in revert()

It runs `work(record, ready)` of the fault of that kind. It is found by its token
alone, which the record has before the process exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Final

from exporter.errors import TritonwatchError
from loadtests.chaos.primitives.process_refs import (
    TOKEN_VARIABLE,
    ProcessRef,
    end_started_with,
    started_with,
)
from loadtests.errors import FaultFailedError

_READY: Final = "ready"
_FAILED: Final = "failed: "
_READY_SECONDS: Final = 15.0
_END_SECONDS: Final = 1.0


def start(
    token: str, kind: str, record: dict[str, Any], longest_seconds: float
) -> None:
    """Start it, and wait until it reports that the fault is in effect.

    Args:
        token: by which it is found, of the fault's record.
        kind: of the fault.
        record: handed to its `work`; plain JSON.
        longest_seconds: after which it ends in any case.

    Raises:
        FaultFailedError: it could not bring the fault about.
    """
    starter = ProcessRef.of(os.getpid())
    task = {
        "kind": kind,
        "record": record,
        "starter": None if starter is None else starter.to_record(),
        "longest_seconds": longest_seconds,
    }
    process = subprocess.Popen(  # noqa: S603 - no shell, our own arguments
        [sys.executable, "-m", "loadtests.chaos.primitives.programs", json.dumps(task)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, TOKEN_VARIABLE: token},
        start_new_session=True,
    )
    # It is reaped as soon as it ends.
    threading.Thread(target=process.wait, daemon=True).start()
    answer = _first_word(process)
    if answer != _READY:
        stop(token)
        raise FaultFailedError(
            answer.removeprefix(_FAILED) or f"{kind} printed nothing"
        )


def _first_word(process: subprocess.Popen[str]) -> str:
    """Return the first word of its output, or the last line of its error."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    with process.stdout as output:
        deadline = time.monotonic() + _READY_SECONDS
        last = ""
        while select.select([output], [], [], max(deadline - time.monotonic(), 0))[0]:
            line = output.readline()
            if not line or line.startswith((_READY, _FAILED)):
                return line.strip() or last
            last = line.strip() or last
    return f"was not in effect after {_READY_SECONDS:g} s"


def stop(token: str) -> None:
    """End every process with this token.

    Raises:
        FaultFailedError: one does not end, or is another user's.
    """
    problems = end_started_with(token, _END_SECONDS)
    if problems:
        raise FaultFailedError("; ".join(problems))


def left(token: str) -> list[str]:
    """Return processes of the fault that still run, in sentences."""
    return [
        f"process {process.pid} of the fault still runs"
        for process in started_with(token)
    ]


def main(arguments: list[str]) -> int:
    """Run the fault: `arguments` has one JSON object, made by `start`."""
    task = json.loads(arguments[0])
    # An undo may have searched before exec gave this process its token; that is only
    # possible if the starter was killed meanwhile.
    if not task["starter"] or not ProcessRef.from_record(task["starter"]).alive:
        return 1
    signal.setitimer(signal.ITIMER_REAL, task["longest_seconds"])
    from loadtests.chaos.faults import FAULTS  # noqa: PLC0415 - they import this module

    try:
        FAULTS[task["kind"]].work(task["record"], _ready)  # type: ignore[attr-defined]
    except (TritonwatchError, OSError) as error:
        with contextlib.suppress(OSError):
            os.write(1, f"{_FAILED}{error}\n".encode())
        return 1
    return 0


def _ready() -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{_READY}\n".encode())
    # Later output has no reader.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
