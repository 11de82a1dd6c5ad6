"""Programs that a fault runs: found again by its token, so that none acts after undo."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.primitives.processes import TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS: Final = 5.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(name: str) -> str | None:
    """Return the path of a program, from the folders of administration too."""
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
