"""The process that keeps a fault up.

    programs.start(record["token"], kind, record, longest_seconds=600)   # in inject()
    programs.stop(record["token"])                                       # in revert()

It runs `work(record, ready)` of the fault of that kind. It is found by its token
alone, which the record has before the process exists.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any, Final

from loadtests.chaos.primitives.process_refs import (
    TOKEN_VARIABLE,
    ProcessRef,
    end_started_with,
    started_with,
)
from loadtests.errors import FaultFailedError

_PROGRAM: Final = "loadtests.chaos.faults.fault_program"
READY: Final = "ready"
FAILED: Final = "failed: "
"""First words of its output."""
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
        [sys.executable, "-m", _PROGRAM, json.dumps(task)],
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
    if answer != READY:
        stop(token)
        raise FaultFailedError(answer.removeprefix(FAILED) or f"{kind} printed nothing")


def _first_word(process: subprocess.Popen[str]) -> str:
    """Return the first word of its output, or the last line of its error."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    with process.stdout as output:
        deadline = time.monotonic() + _READY_SECONDS
        last = ""
        while select.select([output], [], [], max(deadline - time.monotonic(), 0))[0]:
            line = output.readline()
            if not line or line.startswith((READY, FAILED)):
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
