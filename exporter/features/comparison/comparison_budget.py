"""Budget of a shadow comparison, as a share of the champion's production requests."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from exporter.features.comparison.comparison_settings import BudgetSettings


_KEPT_SECONDS: Final = 5.0
_IDLE_AFTER_SECONDS: Final = 2.0
_RATE_SECONDS: Final = 60.0
"""Time over which production's present rate is averaged."""

Limit = Literal["requests", "busy", "idle", "rate", "statistics", "inputs"]
"""The limit that delays the next pair: a share of production's requests or of its busy
time, `idle_pairs_per_second`, `max_pairs_per_second`, the statistics of the champion, or
an input.
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds until the next pair may be sent; infinite if nothing known leads to one."""

    seconds: float
    limit: Limit


@dataclass(frozen=True, slots=True)
class Production:
    """The champion's production so far: inferences and busy seconds, never falling."""

    inferences: float
    busy_seconds: float


class Budget:
    """Allows pairs as they are earned. Thread-safe; times are monotonic seconds.

    Each read of production earns a share of its increase since the previous read. The
    allowance is spread over the time until the next read: pairs of a burst would share
    one moment of both models, and be worth few. An unused allowance is kept for at most
    `_KEPT_SECONDS` of requests. A pair is sent if it is likely to stay within the
    remaining allowance, and is charged at its actual cost (`BusyTime`). Only a pair that
    costs more than any before can exceed the allowance.
    """

    def __init__(self, settings: BudgetSettings, now: float) -> None:
        self._lock = threading.Lock()
        self._settings = settings
        self._next = now
        self._sent_at = now
        self._first: Production | None = None
        self._readings: deque[tuple[float, Production]] = deque()
        """Observations of the last `_RATE_SECONDS`, at least the last two."""
        self._rose_at = now
        self._idle = False
        self._inferences = 0.0
        self._requested = 0.0
        # Sent since the latest reading, while the champion seemed idle.
        self._unpaid = 0.0
        self._earned_seconds = 0.0
        self._busy = BusyTime()

    @property
    def used(self) -> dict[str, float]:
        """Return our requests while there was production as shares of it, by resource."""
        with self._lock:
            if self._first is None:
                return {}
            inferences = self._readings[-1][1].inferences - self._first.inferences
            ours, served = self._busy.known
            busy = served - self._first.busy_seconds
            shares = {"requests": (self._requested, inferences), "busy": (ours, busy)}
            return {name: a / b for name, (a, b) in shares.items() if b > 0}

    def update(
        self, at: float, production: Production | None, booked_seconds: float = 0.0
    ) -> None:
        """Add the allowance that production's increase earns; None where it is not known.

        `booked_seconds` is how long Triton says that both were busy for us, in all.
        """
        with self._lock:
            if production is None:
                self._idle = False
                return
            if self._first is None:
                self._first, self._rose_at = production, at
            before = self._readings[-1][1] if self._readings else production
            self._note(at, production)
            inferences = max(0.0, production.inferences - before.inferences)
            busy = max(0.0, production.busy_seconds - before.busy_seconds)
            if inferences > 0:
                self._rose_at = at
            self._idle = at - self._rose_at >= _IDLE_AFTER_SECONDS
            settings = self._settings
            self._inferences += inferences * (settings.request_ratio or 0.0)
            self._earned_seconds += busy * (settings.busy_ratio or 0.0)
            self._busy.update(
                booked_seconds, production.busy_seconds, paid=not self._idle
            )
            if not self._idle:
                # It was not idle after all: what was asked meanwhile is paid for now.
                self._pay(self._unpaid)
            self._unpaid = 0.0
            self._inferences = min(self._inferences, self._most_kept)

    def next_pair(self, now: float, inferences: int, busy_seconds: float) -> Wait:
        """Return when a pair of that cost may be sent, and the limit that delays it.

        `inferences` is the number sent to each model, `busy_seconds` the expected total
        of both.
        """
        with self._lock:
            settings = self._settings
            paced = Wait(max(0.0, self._next - now), "rate")
            if self._unlimited:
                return paced
            if self._idle:
                rate = settings.idle_pairs_per_second
                return Wait(paced.seconds if rate else math.inf, "idle")
            left = self._earned_seconds - self._busy.seconds
            most = self._most_kept * busy_seconds
            if left > most > 0:
                self._earned_seconds, left = self._earned_seconds - left + most, most
            waits = [paced]
            requests, busy = self._rates()
            if settings.request_ratio is not None:
                earned = requests * settings.request_ratio
                allowed = self._allowed(now, inferences, self._inferences, earned)
                waits.append(Wait(allowed, _cause("requests", allowed)))
            if settings.busy_ratio is not None:
                earned = busy * settings.busy_ratio
                allowed = self._allowed(now, busy_seconds, left, earned)
                waits.append(Wait(allowed, _cause("busy", allowed)))
            return max(waits, key=lambda wait: wait.seconds)

    def _allowed(self, now: float, cost: float, left: float, earned: float) -> float:
        """Seconds until a pair of that cost is allowed.

        `left` is the present allowance, `earned` what production earns a second.
        """
        if left < cost:
            return (cost - left) / earned if earned > 0 else math.inf
        if left <= 0 or len(self._readings) < 2:  # noqa: PLR2004
            return 0.0
        (before, _), (last, _) = self._readings[-2], self._readings[-1]
        ahead = 2 * last - before - self._sent_at
        return max(0.0, self._sent_at + ahead * cost / (left + cost) - now)

    def spend(self, now: float, inferences: int) -> None:
        """Charge the budget for a pair."""
        with self._lock:
            settings = self._settings
            rate = settings.max_pairs_per_second
            if self._idle and not self._unlimited:
                rate = min(rate, settings.idle_pairs_per_second)
                self._unpaid += inferences
            else:
                self._pay(inferences)
            self._next = max(self._next, now) + 1 / rate
            self._sent_at = now

    def waited(self, seconds: float) -> None:
        """Add the total time for which answers of both were awaited."""
        with self._lock:
            self._busy.waited(seconds)

    @property
    def _unlimited(self) -> bool:
        return self._settings.request_ratio is self._settings.busy_ratio is None

    @property
    def _most_kept(self) -> float:
        return max(1.0, _KEPT_SECONDS * self._settings.max_pairs_per_second)

    def _pay(self, inferences: float) -> None:
        self._inferences -= inferences
        self._requested += inferences

    def _note(self, at: float, production: Production) -> None:
        self._readings.append((at, production))
        while len(self._readings) > 2 and self._readings[1][0] <= at - _RATE_SECONDS:  # noqa: PLR2004
            self._readings.popleft()

    def _rates(self) -> tuple[float, float]:
        """Production's inferences and busy seconds a second; 0 while unknown."""
        if not self._readings or self._readings[0][0] == self._readings[-1][0]:
            return 0.0, 0.0
        (since, first), (until, last) = self._readings[0], self._readings[-1]
        return (
            max(0.0, last.inferences - first.inferences) / (until - since),
            max(0.0, last.busy_seconds - first.busy_seconds) / (until - since),
        )


def _cause(share: Limit, seconds: float) -> Limit:
    """The share, or `statistics` where its rate is unknown and no allowance is left."""
    return share if math.isfinite(seconds) else "statistics"


@dataclass(frozen=True, slots=True)
class _Mark:
    """Both bounds at one observation, in seconds since the start."""

    waited: float = 0.0
    booked: float = 0.0
    served: float = 0.0
    """Busy seconds of production, for which no bound is needed."""


class BusyTime:
    """Upper bound of the busy seconds that our requests cause on both models.

    Not thread-safe.

    The time for which answers were awaited is known at once and includes queueing. The
    time that Triton counts for our requests is known one or two reads later and
    includes our other probes. Up to the read before the last, the smaller of the two
    counts; after it, the time awaited. A model that becomes slower is therefore charged
    before it gets further requests.
    """

    def __init__(self) -> None:
        self._waited = 0.0
        self._settled = 0.0
        """Seconds in completed periods with production."""
        self._began: _Mark | None = None
        """The stretch under way."""
        self._known = 0.0
        """The part of it up to `_edge`, the observation before the last two."""
        self._edge = _Mark()
        self._latest = (_Mark(), _Mark())

    @property
    def seconds(self) -> float:
        """Seconds so far, without requests sent while there was no production."""
        if self._began is None:
            return self._settled
        return self._settled + self._known + self._waited - self._edge.waited

    @property
    def known(self) -> tuple[float, float]:
        """Our seconds up to the latest observation whose pairs are counted, and production's."""
        if self._began is None:
            return self._settled, self._latest[1].served
        return self._settled + self._known, self._edge.served

    def waited(self, seconds: float) -> None:
        """Add the total time for which answers were awaited."""
        self._waited = max(self._waited, seconds)

    def update(self, booked: float, served: float, *, paid: bool) -> None:
        """Update the totals that Triton counted for our own requests and for production.

        Args:
            booked: busy seconds of both models for our own requests, in total.
            served: those of production, in total.
            paid: false if production was idle since the last read.
        """
        edge, last = self._latest
        now = _Mark(self._waited, booked, served)
        if not paid or booked < last.booked:
            # Production rests, or another model's time is booked from here on.
            self._settled, self._began, self._known = self.seconds, None, 0.0
            self._latest = (now, now)
            return
        if self._began is None:
            # Requests since the last reading were sent to a busy model.
            self._began = edge = last
        self._known = min(edge.waited - self._began.waited, booked - self._began.booked)
        self._edge, self._latest = edge, (last, now)
