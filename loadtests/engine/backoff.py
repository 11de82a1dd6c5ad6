"""Delays before a client reconnects and before it asks again.

What a user sees of a fault depends on this as much as on the server, so that a run
states it.
"""

from __future__ import annotations

from pydantic import Field

from exporter.settings import Settings


class Backoff(Settings):
    """Waits that grow by a factor from the first to the longest; no jitter.

    After a lost connection, requests fail at once until the wait is over, and the next
    one connects. A closed loop waits as long before the request that follows one without
    an answer, by those in a row. The default is what load runs have always done.
    """

    first_seconds: float = Field(default=0.1, gt=0, le=60)
    """After the first failure."""
    factor: float = Field(default=1.0, ge=1, le=10)
    """By which each further wait is longer."""
    longest_seconds: float = Field(default=0.5, gt=0, le=600)
    """No wait is longer."""
    attempts: int = Field(default=1, ge=1, le=100)
    """How often one request is sent at most, within its own timeout: again where the
    server could not be reached, never where it has answered."""

    def wait_seconds(self, failures: int) -> float:
        """After so many failures in a row, 1 or more."""
        try:
            wait = self.first_seconds * self.factor ** (failures - 1)
        except OverflowError:
            return self.longest_seconds
        return min(wait, self.longest_seconds)
