"""Availability and latency in the last second or so of an active run."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.result import Outcome, quantile_of

if TYPE_CHECKING:
    from loadtests.engine import Progress
    from loadtests.result import Floats, Requests

_STALE_SECONDS: Final = 2.0
"""Time without progress after which the run is over, or its sender hangs."""
_OVERTIME_SECONDS: Final = 3.0
"""Time after its timeout within which a request may still end."""


class LiveWindow:
    """The last second or so of a run, readable while it runs, from any thread.

    A request counts in a window if it ended within it, or waited all through it: a
    server that hangs is not available although nothing has failed yet. Requests that
    the sender itself never came to do not count.
    `timeout_seconds` is the run's own: as long counts a request without a correct answer.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._seen: tuple[Requests, float, float] | None = None

    def feed(self, progress: Progress) -> None:
        """Record the progress of the run, in about a microsecond: the sender waits for it."""
        now = perf_counter()
        self._seen = (progress.requests, now - progress.elapsed_seconds, now)

    def elapsed_seconds(self) -> float | None:
        """Return seconds since the load's start; None before the first progress and after the last."""
        if self._seen is None:
            return None
        _, origin, fed = self._seen
        now = perf_counter()
        return None if now - fed > _STALE_SECONDS else now - origin

    def availability(
        self, window_seconds: float, now: float | None = None
    ) -> float | None:
        """Return the share of correct answers in the window before `now`.

        None where no request was due. `now` is in seconds from the load's
        start, by default this moment.
        """
        found = self._read_window(window_seconds, now)
        if found is None or not found.count:
            return None
        return found.right / found.count

    def latency(
        self, quantile: float, window_seconds: float, now: float | None = None
    ) -> float | None:
        """Return the quantile of latency in seconds, from the intended time.

        Over requests that ended within the window, and those in flight with their wait
        so far, a lower bound of their latency. None where there are neither.
        """
        found = self._read_window(window_seconds, now)
        if found is None or not found.seconds.size:
            return None
        return quantile_of(found.seconds, quantile)

    def _read_window(self, window_seconds: float, now: float | None) -> _Window | None:
        seen = self._seen
        now = self.elapsed_seconds() if now is None else now
        if seen is None or now is None:
            return None
        requests, longest = seen[0], window_seconds + self._timeout + _OVERTIME_SECONDS
        first, last = np.searchsorted(requests.intended, (now - longest, now))
        part = requests.where(slice(int(first), int(last)))
        # The sender writes the outcome last: who reads it first finds the rest in place.
        outcome = part.outcome.copy()
        done, waiting = part.done.copy(), outcome == Outcome.UNSENT
        waiting &= np.isfinite(part.sent)
        # Rejected requests never ended; they were lost when they were due.
        ended_at = np.where(outcome == Outcome.REJECTED, part.intended, done)
        since = now - window_seconds
        ended = ~waiting & (ended_at > since) & (ended_at <= now)
        right = ended & (outcome == Outcome.OK)
        lost = ended & ~right
        seconds = np.where(waiting, now - part.intended, done - part.intended)
        seconds[lost] = self._timeout
        return _Window(
            right=int(right.sum()),
            count=int(ended.sum() + (waiting & (part.intended <= since)).sum()),
            seconds=seconds[ended | waiting],
        )


@dataclass(frozen=True, slots=True)
class _Window:
    right: int
    count: int
    seconds: Floats
    """Latencies of finished requests, and waiting times of others."""
