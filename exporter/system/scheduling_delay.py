"""Time in which this process could not run while it measured something."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TICK_SECONDS: Final = 0.02
_PAUSE_SECONDS: Final = 0.1
"""A timer that is late by less than this does not count as a pause: threads that share
the interpreter delay each other slightly all the time, which would add up to seconds."""


class SchedulingDelay:
    """Adds up the pauses of the running event loop: timers that fire much too late.

    A timer is so late when the process is stopped or throttled, when the machine is
    overloaded and when another thread keeps the interpreter. Timers run only while
    something is measured.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._measuring = 0
        self._sum = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def measured(self) -> Iterator[Callable[[], float]]:
        """Yield a function that returns the delay in seconds since the beginning."""
        if self._timer is None:
            self._start_timer()
        self._measuring += 1
        before = self._total()
        try:
            yield lambda: self._total() - before
        finally:
            self._measuring -= 1
            if not self._measuring and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _total(self) -> float:
        overdue = 0.0 if self._timer is None else self._loop.time() - self._due
        return self._sum + (overdue if overdue > _PAUSE_SECONDS else 0.0)

    def _tick(self) -> None:
        self._sum = self._total()
        self._start_timer()

    def _start_timer(self) -> None:
        self._due = self._loop.time() + _TICK_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)
