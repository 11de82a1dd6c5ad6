"""Who took how much of a device's energy in one window. Pure: no I/O, no clock.

The device's idle power is taken off first. What is left is divided among the models that
were busy, by busy seconds times the watts a busy second of each takes, as estimated from
the windows so far (`BusyPower`). Nobody can get more than the device can take in the time
in which anything was busy. Shares are whole microjoules and add up to the energy exactly.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

MICRO: Final = 1_000_000
T = TypeVar("T", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Shares(Generic[T]):
    """Energy of one window in microjoules: the three parts add up to all of it."""

    models: Mapping[T, int]
    idle: int
    unattributed: int


def divide(
    energy: int,
    seconds: float,
    weights: Mapping[T, float],
    *,
    busy_seconds: float,
    idle_watts: float | None,
    max_watts: float | None,
) -> Shares[T]:
    """Divide `energy` microjoules of `seconds` by `weights` (busy seconds x watts).

    `busy_seconds` is the sum over models, which may be more than `seconds`. Without
    `idle_watts` nothing is idle: it is in the models' shares.
    """
    idle = min(energy, int((idle_watts or 0.0) * seconds * MICRO))
    active = energy - idle
    whole = sum(weights.values())
    if whole <= 0:
        return Shares({}, idle, active)
    given = active
    if max_watts is not None:
        above_idle = max(0.0, max_watts - (idle_watts or 0.0))
        given = min(active, int(above_idle * min(busy_seconds, seconds) * MICRO))
    models = {key: int(given * (weight / whole)) for key, weight in weights.items()}
    return Shares(models, idle, active - sum(models.values()))


class IdlePower:
    """Power of a device while nothing runs: the median over the latest quiet windows."""

    _ENOUGH: Final = 3
    _KEPT: Final = 61

    def __init__(self, configured_watts: float | None = None) -> None:
        self._configured = configured_watts
        self._seen: deque[float] = deque(maxlen=self._KEPT)

    def learn(self, energy: int, seconds: float) -> None:
        """Take in a window in which nothing ran: microjoules and seconds."""
        self._seen.append(energy / MICRO / seconds)

    @property
    def watts(self) -> float | None:
        """The idle power; None while it is neither configured nor known."""
        if self._configured is not None:
            return self._configured
        return median(self._seen) if len(self._seen) >= self._ENOUGH else None


class BusyPower(Generic[T]):
    """Watts above idle that a busy second of each model takes.

    Ridge regression with forgetting: power of a window = sum over models of busy ratio x
    watts, with the watts drawn towards the pooled mean as far as the windows do not tell
    the models apart, and never below 0. Two models that always run together cannot be
    told apart and share by busy time alone; where they alternate or their mix changes, a
    few windows are enough. Assumes that power adds up, which it does not quite.
    """

    _FORGET: Final = 0.98
    _RIDGE: Final = 0.02
    _MOST_MODELS: Final = 64
    _FORGOTTEN: Final = 1e-3
    _ROUNDS: Final = 4

    def __init__(self) -> None:
        self._place: dict[T, int] = {}
        self._gram = np.zeros((self._MOST_MODELS, self._MOST_MODELS))
        self._moment = np.zeros(self._MOST_MODELS)
        self._power = np.zeros(self._MOST_MODELS)
        self._joules = self._busy = 0.0

    def learn(self, joules: float, seconds: float, busy: Mapping[T, float]) -> None:
        """Take in a window: joules above idle and each model's busy seconds."""
        self._joules = self._joules * self._FORGET + joules
        self._busy = self._busy * self._FORGET + sum(busy.values())
        ratios = np.zeros(self._MOST_MODELS)
        for key, value in busy.items():
            place = self._placed(key)
            if place is None:
                joules -= value * self._pooled
            else:
                ratios[place] = value / seconds
        self._gram = self._gram * self._FORGET + np.outer(ratios, ratios)
        self._moment = self._moment * self._FORGET + ratios * (joules / seconds)
        self._solve()

    def watts(self, key: T) -> float:
        """Watts above idle; the pooled mean for a model never seen."""
        place = self._place.get(key)
        value = self._pooled if place is None else float(self._power[place])
        # A model that seems to take nothing still takes something.
        return max(value, 1e-3 * self._pooled) or 1.0

    def forget(self, key: T) -> None:
        """Give the place of a model that is gone to others."""
        place = self._place.pop(key, None)
        if place is not None:
            self._gram[place, :] = self._gram[:, place] = 0.0
            self._moment[place] = self._power[place] = 0.0

    def _forget_the_idlest(self) -> None:
        """Make room, if a model's windows are as good as forgotten."""
        seen = np.diagonal(self._gram)
        key = min(self._place, key=lambda key: seen[self._place[key]])
        if seen[self._place[key]] < self._FORGOTTEN * float(seen.max()):
            self.forget(key)

    @property
    def _pooled(self) -> float:
        return self._joules / self._busy if self._busy > 0 else 0.0

    def _placed(self, key: T) -> int | None:
        place = self._place.get(key)
        if place is None and len(self._place) == self._MOST_MODELS:
            self._forget_the_idlest()
        if place is None and len(self._place) < self._MOST_MODELS:
            free = set(range(self._MOST_MODELS)) - set(self._place.values())
            place = self._place[key] = min(free)
            self._power[place] = self._pooled
        return place

    def _solve(self) -> None:
        """Minimise |A w - p|² + ridge |w - pooled|², those below 0 held at 0 in turn."""
        places = np.array(sorted(self._place.values()))
        gram = self._gram[np.ix_(places, places)]
        ridge = self._RIDGE * max(float(np.trace(gram)) / max(len(places), 1), 1e-12)
        moment = self._moment[places] + ridge * self._pooled
        gram = gram + ridge * np.eye(len(places))
        power = np.zeros(len(places))
        free = np.ones(len(places), dtype=bool)
        for _ in range(self._ROUNDS):
            power[:] = 0.0
            power[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
            if (power >= 0).all():
                break
            free &= power > 0
        self._power[places] = np.maximum(power, 0.0)
