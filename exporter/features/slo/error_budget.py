"""Burn rate of an error budget, and the share that is left, in bounded memory.

Burn rate as the SRE workbook has it (chapter 5): the share of bad events divided by
the share allowed. 1 uses the budget up exactly at the end of its window.
"""

from __future__ import annotations

from typing import Final

import numpy as np

FINE_SECONDS: Final = 30.0
COARSE_SECONDS: Final = 3600.0
_FINE_SPAN_SECONDS: Final = 3 * 86400.0
WINDOWS: Final = {
    "5m": 300.0,
    "30m": 1800.0,
    "1h": 3600.0,
    "2h": 7200.0,
    "6h": 21600.0,
    "1d": 86400.0,
    "3d": 259200.0,
}
"""The windows of the workbook's alerts, in seconds."""


class _Ring:
    """Cumulative (good, bad) at the start of each slot, the latest slots kept."""

    def __init__(self, slot_seconds: float, span_seconds: float) -> None:
        self._slot_seconds = slot_seconds
        # A span that begins and ends within a slot lies in one more than it is long.
        self._size = int(span_seconds / slot_seconds) + 2
        self._totals = np.zeros((self._size, 2))
        self._slot = -1

    def note(self, now: float, good: float, bad: float) -> None:
        slot = int(now / self._slot_seconds)
        # Slots without a reading begin with the totals of the reading before them.
        for missed in range(max(self._slot + 1, slot - self._size + 1), slot + 1):
            self._totals[missed % self._size] = (good, bad)
        self._slot = slot

    def at(self, when: float) -> tuple[float, float]:
        """Return the totals at the start of the slot of `when`, a span ago at most."""
        good, bad = self._totals[int(when // self._slot_seconds) % self._size]
        return float(good), float(bad)


class Budget:
    """Burn rates over every window, and the budget left, of one objective."""

    def __init__(self, objective_ratio: float, window_seconds: float) -> None:
        self._allowed = 1 - objective_ratio
        self._window_seconds = window_seconds
        self._fine = _Ring(FINE_SECONDS, _FINE_SPAN_SECONDS)
        self._coarse = _Ring(COARSE_SECONDS, window_seconds)
        self._good = 0.0
        self._bad = 0.0

    def note(self, now: float, good: float, bad: float) -> None:
        """Record the totals since the start; `now` is monotonic seconds.

        `burn_rate` and `remaining_ratio` take the same `now` afterwards, not a later one.
        """
        self._fine.note(now, self._good, self._bad)
        self._coarse.note(now, self._good, self._bad)
        self._good, self._bad = good, bad

    def burn_rate(self, now: float, window_seconds: float) -> float | None:
        """Share of bad events over the allowed share; None without events.

        Before a whole window was observed, the rate is that of the observed time.
        """
        share = self._bad_share(self._fine.at(now - window_seconds))
        return None if share is None else share / self._allowed

    def remaining_ratio(self, now: float) -> float | None:
        """Return the remaining share of the budget: 1 untouched, 0 used up, below 0 overdrawn."""
        share = self._bad_share(self._coarse.at(now - self._window_seconds))
        return None if share is None else 1 - share / self._allowed

    def _bad_share(self, since: tuple[float, float]) -> float | None:
        good, bad = self._good - since[0], self._bad - since[1]
        return bad / (good + bad) if good + bad > 0 else None
