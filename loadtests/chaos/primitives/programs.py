"""Programs that a fault runs: found again by its token, so that none acts after undo."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.primitives.processes import TOKEN_VARIABLE, started_with

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS: Final = 5.0
_END_SECONDS: Final = 1.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(name: str) -> str | None:
    """Where a program is, in the folders of administration too."""
    return shutil.which(name) or shutil.which(name, path=_PATH)


def environment(token: str) -> dict[str, str]:
    """Of what a fault starts: its token is how undo finds it."""
    return {**os.environ, TOKEN_VARIABLE: token}


def run(token: str, command: Sequence[str], *, given: str = "") -> str:
    """Return what a program prints.

    Raises:
        FaultFailedError: it is not there, fails, or takes five seconds.
    """
    result = attempt(token, command, given=given)
    if result.returncode:
        said = (result.stderr or result.stdout).strip() or f"exit {result.returncode}"
        raise FaultFailedError(f"`{' '.join(command)}` failed: {said}")
    return result.stdout


def attempt(
    token: str, command: Sequence[str], *, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Return how a program ended, whichever way.

    Raises:
        FaultFailedError: it is not there, or takes five seconds.
    """
    program = find(command[0])
    if program is None:
        raise FaultFailedError(f"{command[0]} is not installed")
    try:
        return subprocess.run(  # noqa: S603 - no shell; arguments are the fault's own
            [program, *command[1:]],
            env=environment(token),
            input=given,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FaultFailedError(
            f"`{' '.join(command)}` did not end in {_SECONDS:g} s"
        ) from None


def end_all(token: str) -> None:
    """Kill whatever runs with this token, and wait until it is gone.

    A program that outlives a killed runner would do its work after the undo.

    Raises:
        FaultFailedError: a process is still there after a second.
    """
    deadline = time.monotonic() + _END_SECONDS
    while running := [p for p in started_with(token) if p.pid != os.getpid()]:
        for process in running:
            process.send(signal.SIGKILL)
        for process in running:
            process.wait_until(None, max(deadline - time.monotonic(), 0.0))
        if time.monotonic() > deadline:
            left = " ".join(str(process.pid) for process in running)
            raise FaultFailedError(f"processes {left} cannot be ended; kill -9 {left}")
