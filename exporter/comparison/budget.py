"""How much a shadow comparison may ask: a share of what production asks the champion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
    """Allows pairs as they are earned. Not thread-safe.

    Each look at production earns a share of its rise since the last; what is not used
    is kept for `_KEPT_SECONDS` of asking at most, so that no burst comes of it.
    """

    def __init__(self, settings: BudgetSettings, now: float) -> None:
        self._settings = settings
        self._next = now
        self._first: Production | None = None
        self._last: Production | None = None
        self._idle = False
        self._inferences = 0.0
        self._busy = 0.0
        self._asked = 0.0
        self._asked_busy = 0.0
        # Asked since the latest look, while the champion seemed idle.
        self._unpaid = 0.0
        self._unpaid_busy = 0.0

    @property
    def used(self) -> Used:
        """What was asked while there was production, as shares of it."""
        if self._first is None or self._last is None:
            return Used(None, None)
        inferences = self._last.inferences - self._first.inferences
        busy = self._last.busy_seconds - self._first.busy_seconds
        return Used(
            self._asked / inferences if inferences > 0 else None,
            self._asked_busy / busy if busy > 0 else None,
        )

    def look(self, production: Production | None) -> None:
        """Earn what production's rise allows; None where it is not known."""
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
        self._busy += busy * settings.busy_ratio
        if not self._idle:
            # It was not idle after all: what was asked meanwhile is paid for now.
            self._pay(self._unpaid, self._unpaid_busy)
        self._unpaid = self._unpaid_busy = 0.0
        most = max(1.0, _KEPT_SECONDS * settings.max_pairs_per_second)
        self._inferences = min(self._inferences, most)

    def wait_seconds(self, now: float, inferences: int, busy_seconds: float) -> float:
        """How long until a pair of that cost may be asked; infinite if not as it is.

        `inferences` is what each of the two is asked, `busy_seconds` what both take.
        """
        if self._idle:
            rate = self._settings.idle_pairs_per_second
            if not rate:
                return _NEVER
        elif self._inferences < inferences or self._busy < busy_seconds:
            return _NEVER
        return max(0.0, self._next - now)

    def spend(self, now: float, inferences: int, busy_seconds: float) -> None:
        """A pair is asked."""
        settings = self._settings
        rate = settings.max_pairs_per_second
        if self._idle:
            rate = min(rate, settings.idle_pairs_per_second)
            self._unpaid += inferences
            self._unpaid_busy += busy_seconds
        else:
            self._pay(inferences, busy_seconds)
        self._next = max(self._next, now) + 1 / rate

    def _pay(self, inferences: float, busy_seconds: float) -> None:
        self._inferences -= inferences
        self._busy -= busy_seconds
        self._asked += inferences
        self._asked_busy += busy_seconds
