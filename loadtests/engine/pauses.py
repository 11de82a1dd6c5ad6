"""Pauses of a closed loop while the server is unreachable."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.engine.backoff import Backoff

MAX_PER_SECOND: Final = 1000
"""Most pauses that end in a second, however many requests are kept in flight: one that
cannot connect fails in microseconds."""


class Pauses:
    """Those of a closed loop who wait, as their last request got no answer.

    Args:
        backoff: how long, by the failures in a row.
        ask: begin the next request, after so many failures.
    """

    def __init__(self, backoff: Backoff, ask: Callable[[int], None]) -> None:
        self.waited_seconds = 0.0
        """All of them together."""
        self._backoff = backoff
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[float, asyncio.TimerHandle]] = {}
        self._begun = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, failures: int) -> None:
        """One waits, after so many failures in a row, 1 or more."""
        wait = max(
            self._backoff.wait_seconds(failures),
            (len(self._waiting) + 1) / MAX_PER_SECOND,
        )
        key = self._begun = self._begun + 1
        timer = self._loop.call_later(wait, self._end, key, failures)
        self._waiting[key] = (perf_counter(), timer)

    def clear(self) -> None:
        """Nobody asks again."""
        now = perf_counter()
        for began, timer in self._waiting.values():
            timer.cancel()
            self.waited_seconds += now - began
        self._waiting.clear()

    def _end(self, key: int, failures: int) -> None:
        began, _ = self._waiting.pop(key)
        self.waited_seconds += perf_counter() - began
        self._ask(failures)
