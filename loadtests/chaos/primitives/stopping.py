"""Processes that are stopped for a while: SIGSTOP, and SIGCONT whatever happens."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from loadtests.chaos.errors import FaultFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.primitives.processes import ProcessRef

_WAIT_SECONDS: Final = 0.5


def stop(processes: Sequence[ProcessRef]) -> None:
    """Stop them in this order, and wait until they are; one that is gone stays gone."""
    for process in processes:
        process.send(signal.SIGSTOP)
    for process in processes:
        process.wait_until("Tt", _WAIT_SECONDS)


def go_on(processes: Sequence[ProcessRef]) -> None:
    """Let them go on in this order, and wait until they do.

    Raises:
        FaultFailedError: one does not; says how to help it.
    """
    for process in processes:
        process.send(signal.SIGCONT)
    for process in processes:
        if process.alive and not process.wait_until("RSDI", _WAIT_SECONDS):
            raise FaultFailedError(
                f"process {process.pid} is still stopped; kill -CONT {process.pid}"
            )


def is_stopped(process: ProcessRef) -> bool:
    """Return whether it is there and stopped."""
    return process.state in {"T", "t"}
