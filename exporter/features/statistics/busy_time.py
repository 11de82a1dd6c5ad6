"""Busy times of models, which generate tokens after they have released their requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class BusyTime:
    """Seconds of work: at each read the longer of what statistics and backend report.

    A decoupled model may release its requests as soon as it has accepted them: Triton's
    statistics then show milliseconds of work for answers that take seconds. If its backend
    sums the times of its tokens, their increase between two reads is the time it worked,
    at most the time between the reads, since requests run concurrently. That is exact for
    consecutive requests and for a model that is never idle; in between, it is too long by
    the time in which requests overlapped.
    """

    busy: float = 0.0
    production: float = 0.0
    is_reported: bool = False
    """True if the backend reports times of its tokens."""
    is_reported_now: bool = False
    """True if it did so at the latest read."""
    _at: float = 0.0
    _statistics: tuple[float, float] = (0.0, 0.0)
    _backend: float = 0.0
    _tokens: float = 0.0
    _own: int = 0
    _owed: int = 0
    """Own tokens whose answers are known, and which the backend did not show yet."""
    _share: float = 1.0
    _rises: tuple[float, float] = (0.0, 0.0)
    """Seconds of all and of production added since the page was last read."""

    def advance(
        self,
        at: float,
        statistics: tuple[float, float],
        page: Mapping[str, float] | None,
        ours: int,
    ) -> None:
        """Add what rose until `at`; `statistics` are seconds of all and of production.

        `ours` are the output tokens of our own requests so far.
        """
        rise, production = (
            now - then for now, then in zip(statistics, self._statistics, strict=True)
        )
        self._statistics = statistics
        self.busy += rise
        self.production += production
        self._rises = self._rises[0] + rise, self._rises[1] + production
        self.is_reported_now = page is not None and "token_seconds" in page
        if page is not None and self.is_reported_now:
            seconds = page["token_seconds"] + page.get("first_seconds", 0.0)
            tokens = page.get("output", 0.0)
            spent = seconds - self._backend if seconds >= self._backend else seconds
            made = tokens - self._tokens if tokens >= self._tokens else tokens
            self._owed = max(0, self._owed + ours - self._own)
            self._own = ours
            if made > 0:
                seen = min(self._owed, made)
                self._owed -= round(seen)
                self._share = 1.0 - seen / made
            worked = min(spent, at - self._at)
            if self.is_reported and worked > self._rises[0]:
                self.busy += worked - self._rises[0]
                # A counter: what the statistics took for production is not taken back.
                self.production += max(0.0, worked * self._share - self._rises[1])
            self.is_reported = True
            self._rises = 0.0, 0.0
            self._backend, self._tokens, self._at = seconds, tokens, at
