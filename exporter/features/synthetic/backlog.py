"""Distinguishes a sequence model busy with other clients from one that is stuck.

While other clients hold all sequence slots, a probe waits in Triton's backlog however
well the model is. Executions that go up show that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from exporter.access.inventory import ModelKey
    from exporter.own_requests.execution_evidence import Reading, Watched

_MOST_SKIPPED: Final = 64


class Backlog:
    """Recent executions of the sequence models behind one target."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._executions: dict[ModelKey, int] = {}
        self._rose_at: dict[ModelKey, float] = {}
        self._skips = 0
        self._skips_left = 0

    def add(self, reading: Reading, watched: Watched, now: float) -> None:
        """Record a reading of the statistics, made at `now` in monotonic seconds."""
        for key in watched.sequences:
            count = reading.executions(key)
            if count > self._executions.get(key, count):
                self._rose_at[key] = now
            self._executions[key] = count

    def moves(self, watched: Watched, now: float) -> bool:
        """Return whether all of them were executed within the window."""
        return all(
            key in self._rose_at and now - self._rose_at[key] <= self._window_seconds
            for key in watched.sequences
        )

    def waited(self) -> None:
        """Record an own request that timed out in a queue; send the next ones less often.

        Triton keeps abandoned requests until a slot is free, so they would accumulate.
        """
        self._skips = min(max(1, 2 * self._skips), _MOST_SKIPPED)
        self._skips_left = self._skips

    def skips(self) -> bool:
        """Return whether this attempt only reads the statistics; counts down."""
        self._skips_left -= 1
        return self._skips_left >= 0

    def over(self) -> None:
        """Resume the normal rate: a request succeeded, or no model makes progress."""
        self._skips = self._skips_left = 0
