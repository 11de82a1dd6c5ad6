"""How much a shadow comparison may ask: a share of what production asks the champion."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.comparison.busy_time import BusyTime

if TYPE_CHECKING:
    from exporter.comparison.settings import BudgetSettings

_KEPT_SECONDS: Final = 5.0
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Production:
    """The champion's production so far: inferences and busy seconds, never falling."""

    inferences: float
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class Used:
    """What was asked, as a share of what production asked; None without production."""

    requests_ratio: float | None
    busy_ratio: float | None


class Budget:
    """Allows pairs as they are earned. Thread-safe.

    Each look at production earns a share of its rise since the last; what is not used
    is kept for `_KEPT_SECONDS` of asking at most, so that no burst comes of it. A pair is
    asked if it is likely to stay within what is left, and what it took is paid in full
    (`BusyTime`): of a pair dearer than ever before, that alone goes beyond.
    """

    def __init__(self, settings: BudgetSettings, now: float) -> None:
        self._lock = threading.Lock()
        self._settings = settings
        self._next = now
        self._first: Production | None = None
        self._last: Production | None = None
        self._idle = False
        self._inferences = 0.0
        self._asked = 0.0
        # Asked since the latest look, while the champion seemed idle.
        self._unpaid = 0.0
        self._earned_seconds = 0.0
        self._taken = BusyTime()

    @property
    def used(self) -> Used:
        """What was asked while there was production, as shares of it."""
        with self._lock:
            if self._first is None or self._last is None:
                return Used(None, None)
            inferences = self._last.inferences - self._first.inferences
            ours, served = self._taken.known
            busy = served - self._first.busy_seconds
            return Used(
                self._asked / inferences if inferences > 0 else None,
                ours / busy if busy > 0 else None,
            )

    def look(self, production: Production | None, booked_seconds: float = 0.0) -> None:
        """Earn what production's rise allows; None where it is not known.

        `booked_seconds` is how long Triton says that both were busy for us, in all.
        """
        with self._lock:
            if production is None:
                self._idle = False
                return
            before = self._last or production
            self._first = self._first or production
            self._last = production
            inferences = max(0.0, production.inferences - before.inferences)
            busy = max(0.0, production.busy_seconds - before.busy_seconds)
            self._idle = inferences == 0
            settings = self._settings
            self._inferences += inferences * settings.request_ratio
            self._earned_seconds += busy * settings.busy_ratio
            self._taken.look(
                booked_seconds, production.busy_seconds, paid=not self._idle
            )
            if not self._idle:
                # It was not idle after all: what was asked meanwhile is paid for now.
                self._pay(self._unpaid)
            self._unpaid = 0.0
            self._inferences = min(self._inferences, self._most_kept)

    def wait_seconds(self, now: float, inferences: int, busy_seconds: float) -> float:
        """How long until a pair of that cost may be asked; infinite if not as it is.

        `inferences` is what each of the two is asked, `busy_seconds` what both are
        likely to take.
        """
        with self._lock:
            if self._idle:
                rate = self._settings.idle_pairs_per_second
                if not rate:
                    return _NEVER
                return max(0.0, self._next - now)
            left = self._earned_seconds - self._taken.seconds
            most = self._most_kept * busy_seconds
            if left > most > 0:
                self._earned_seconds, left = self._earned_seconds - left + most, most
            if self._inferences < inferences or left < busy_seconds:
                return _NEVER
            return max(0.0, self._next - now)

    def spend(self, now: float, inferences: int) -> None:
        """A pair is asked."""
        with self._lock:
            settings = self._settings
            rate = settings.max_pairs_per_second
            if self._idle:
                rate = min(rate, settings.idle_pairs_per_second)
                self._unpaid += inferences
            else:
                self._pay(inferences)
            self._next = max(self._next, now) + 1 / rate

    def waited(self, seconds: float) -> None:
        """For so long answers of both were waited for, in all."""
        with self._lock:
            self._taken.waited(seconds)

    @property
    def _most_kept(self) -> float:
        return max(1.0, _KEPT_SECONDS * self._settings.max_pairs_per_second)

    def _pay(self, inferences: float) -> None:
        self._inferences -= inferences
        self._asked += inferences
