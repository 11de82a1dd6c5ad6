"""Delays before a client reconnects and before it retries."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pydantic import Field

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PER_SECOND: Final = 1000
"""Most pauses that end in a second, however many requests are kept in flight: one that
cannot connect fails in microseconds."""


class Backoff(Settings):
    """Waits that grow by a factor from the first to the longest; no jitter.

    After a lost connection, requests fail at once until the wait is over, and the next
    one connects. A closed loop waits as long before the request that follows one without
    an answer, by those in a row. The default is what load runs have always done.
    """

    first_seconds: float = Field(default=0.1, gt=0, le=60)
    """Wait after the first failure."""
    factor: float = Field(default=1.0, ge=1, le=10)
    """Factor between consecutive waits."""
    longest_seconds: float = Field(default=0.5, gt=0, le=600)
    """Longest wait."""
    attempts: int = Field(default=1, ge=1, le=100)
    """Maximum number of sends of one request, within its own timeout: again where the server
    could not be reached, never where it has answered.
    """

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after this number of failures in a row, 1 or more."""
        try:
            wait = self.first_seconds * self.factor ** (failures - 1)
        except OverflowError:
            return self.longest_seconds
        return min(wait, self.longest_seconds)


class Pauses:
    """Pauses of a closed loop's requests, each after one without an answer.

    Args:
        backoff: how long, by the failures in a row.
        ask: begins the next request, after this number of failures.
    """

    def __init__(self, backoff: Backoff, ask: Callable[[int], None]) -> None:
        self.waited_seconds = 0.0
        """Time of all pauses together."""
        self._backoff = backoff
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[float, asyncio.TimerHandle]] = {}
        self._begun = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, failures: int) -> None:
        """Start a pause, after this number of failures in a row, 1 or more."""
        wait = max(
            self._backoff.wait_seconds(failures),
            (len(self._waiting) + 1) / MAX_PER_SECOND,
        )
        key = self._begun = self._begun + 1
        timer = self._loop.call_later(wait, self._end, key, failures)
        self._waiting[key] = (perf_counter(), timer)

    def clear(self) -> None:
        """Cancel all pauses."""
        now = perf_counter()
        for began, timer in self._waiting.values():
            timer.cancel()
            self.waited_seconds += now - began
        self._waiting.clear()

    def _end(self, key: int, failures: int) -> None:
        began, _ = self._waiting.pop(key)
        self.waited_seconds += perf_counter() - began
        self._ask(failures)
