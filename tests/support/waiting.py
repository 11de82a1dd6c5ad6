"""Waiting for conditions, with one limit that scales with how busy the machine is."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_SECONDS: Final = 60.0
"""For what should have happened long ago: waiting ends as soon as the condition holds."""


def patience(seconds: float = PATIENCE_SECONDS) -> float:
    """Return `seconds`, multiplied by the runnable processes per core if above one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def pause(waited: float) -> None:
    """Sleep for a tenth of the time waited so far: soon again at first, then seldom."""
    time.sleep(min(0.2, max(0.01, waited / 10)))


def wait_until(
    holds: Callable[[], T],
    what: object = "",
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """Return the first true result of `holds`; fail with `what` after `patience(seconds)`.

    `what` may be a function, called at the end: a log, the last answer.
    """
    started = time.monotonic()
    while not (found := holds()):
        waited = time.monotonic() - started
        if waited > patience(seconds):
            shown = what() if callable(what) else what
            raise AssertionError(f"not so after {waited:.0f} s: {shown or holds}")
        pause(waited)
    return found


IGNORING_SIGINT: Final = ("sh", "-c", 'trap "" INT; exec "$0" "$@"')
"""Runs a command as scripts do in the background. Those of ours that install a handler
are interrupted all the same, as Prometheus is."""
