"""Division of a device's energy among models in one window. Pure: no I/O, no clock.

The device's idle power is subtracted first. The rest is divided among the busy models,
by busy seconds times each model's watts while busy, as estimated from the windows so far
(`BusyPower`). Where the device is busy without the models, too, the rest is theirs only
in part: what differs from the estimate is divided between them and other load in
proportion to the variances of both (the best linear prediction; G. K. Robinson,
Statistical Science 6 (1991) 15-32). No model can get more than the device can draw in
the time in which anything was busy. Shares are whole microjoules and add up to the
energy exactly.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from exporter.features.energy import power_fit

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MICRO: Final = 1_000_000
_SAME_INSTANT: Final = 1e-6
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
    others_watts: float = 0.0,
    trusted_ratio: float = 1.0,
) -> Shares[T]:
    """Divide `energy` microjoules of `seconds` by `weights` (busy seconds x watts).

    `busy_seconds` is the sum over models, which may be more than `seconds`. Without
    `idle_watts` nothing is idle: it is in the models' shares. `others_watts` of it are
    others' in the mean, and unattributed. `trusted_ratio` is the part of the difference
    between what was measured and the weights that is the models'.
    """
    own_idle = max(0.0, (idle_watts or 0.0) - others_watts)
    idle = int(own_idle * seconds * MICRO)
    whole = sum(weights.values())
    if whole <= 0:
        return Shares({}, min(idle, energy), energy - min(idle, energy))
    active = energy - int((idle_watts or 0.0) * seconds * MICRO)
    if trusted_ratio < 1.0:
        expected = whole * MICRO
        active = int(expected + trusted_ratio * (active - expected))
    given = min(max(active, 0), energy)
    if max_watts is not None:
        above_idle = max(0.0, max_watts - (idle_watts or 0.0))
        given = min(given, int(above_idle * min(busy_seconds, seconds) * MICRO))
    models = {key: int(given * (weight / whole)) for key, weight in weights.items()}
    rest = energy - sum(models.values())
    return Shares(models, min(idle, rest), rest - min(idle, rest))


class UnusedPower:
    """Power of a device while no model runs, from the latest such windows.

    The idle power is the median over those in which nothing else was seen to run; what
    all of them took above it is other load. An execution is booked when it ends, so a
    window counts for that only when later ones have shown that none was under way.
    """

    _ENOUGH: Final = 3
    _KEPT: Final = 61
    _HELD_BACK: Final = 12

    def __init__(self, configured_watts: float | None = None) -> None:
        self._configured = configured_watts
        self._quiet: deque[float] = deque(maxlen=self._KEPT)
        self._waiting: deque[float] = deque()
        self._unused: deque[float] = deque(maxlen=self._KEPT)

    def learn(self, energy: int, seconds: float, *, quiet: bool = True) -> None:
        """Learn from a window: microjoules, seconds, and whether nothing else ran."""
        watts = energy / MICRO / seconds
        if quiet:
            self._quiet.append(watts)
        self._waiting.append(watts)
        if len(self._waiting) > self._HELD_BACK:
            self._unused.append(self._waiting.popleft())

    def skip(self, busy_seconds: float, seconds: float) -> None:
        """Note a window in which models ran, or that is not known."""
        for _ in range(min(len(self._waiting), math.ceil(busy_seconds / seconds))):
            self._waiting.pop()
        self._unused.extend(self._waiting)
        self._waiting.clear()

    @property
    def watts(self) -> float | None:
        """The idle power; None while it is neither configured nor known."""
        if self._configured is not None:
            return self._configured
        return median(self._quiet) if len(self._quiet) >= self._ENOUGH else None

    def forget_others(self) -> None:
        """Forget other load; it is learnt again."""
        self._waiting.clear()
        self._unused.clear()

    @property
    def others(self) -> power_fit.OtherLoad:
        """Power drawn above idle; zero until enough windows were seen."""
        idle = self.watts
        if idle is None or len(self._unused) < self._ENOUGH:
            return power_fit.NO_OTHER_LOAD
        above = np.array(self._unused) - idle
        return power_fit.OtherLoad(float(above.mean()), float(above.std()))


class BusyPower(Generic[T]):
    """Watts above idle that a busy second of each model takes, with their intervals.

    Fitted to the latest windows (`power_fit.fit`). Two models that always run together
    cannot be told apart and share by busy time alone; where they alternate or their mix
    changes, a few windows are enough. Assumes that power adds up, which it does not quite.
    """

    _KEPT: Final = 240
    _MOST_MODELS: Final = 64
    _FORGOTTEN: Final = 1e-3
    _ENOUGH: Final = 20
    _LEAST_WATTS_RATIO: Final = 1e-3
    _SEEN_OTHERS: Final = 0.05
    """Least variance of windows without models, over that of the fit, which is a sign of
    other load; and the most over it that the windows with models do not contradict."""
    _GONE_OTHERS: Final = 10.0
    _MOST_DEVIATION: Final = 0.5
    """Of what a model's busy second takes in one window, relative to its mean."""

    def __init__(self) -> None:
        self._place: dict[T, int] = {}
        self._busy = np.zeros((0, self._MOST_MODELS))
        self._unplaced = np.zeros(0)
        """Busy ratios of models without a place."""
        self._watts: Floats = np.zeros((0, 1))
        self._smear: Floats = np.zeros((0, 1))
        self._seconds = np.zeros(0)
        self._until = np.zeros(0)
        self._power = np.zeros(self._MOST_MODELS)
        self._error = np.full(self._MOST_MODELS, np.nan)
        self._worth = np.full(self._MOST_MODELS, np.nan)
        self._pooled = 0.0
        self._relative_variance = 0.0
        """Of what the models take in a window, about what their busy time lets expect."""
        self._others_variance = 0.0
        """Of what else takes power, in square watts."""
        self.others_watts = 0.0
        """Mean power of other load, a part of `baseline_watts`."""
        self.others_are_gone = False
        """True if windows with models contradict the load that was seen without."""
        self.baseline_watts = 0.0
        """Power above the idle power that does not depend on the models, in watts."""
        self.lag_seconds: float | None = None
        """Delay of the sensor; None while none is detected."""

    def learn(
        self,
        joules: float | Floats,
        seconds: float,
        busy: Mapping[T, float],
        idle_watts: float | None = None,
        *,
        others: power_fit.OtherLoad = power_fit.NO_OTHER_LOAD,
        smear: float | Floats = 0.0,
        until: float = math.nan,
    ) -> None:
        """Learn from a window: its joules and each model's busy seconds.

        Args:
            joules: all, or at each of `power_fit.DELAYS`.
            seconds: how long it was.
            busy: by model.
            idle_watts: what of them is taken for idle; without it all are the models'.
            others: power above that while no model ran.
            smear: see `power_fit.Windows`.
            until: when it ended, so that windows that follow each other are known.
        """
        ratios, unplaced = np.zeros(self._MOST_MODELS), 0.0
        for key, value in busy.items():
            place = self._placed(key)
            if place is None:
                unplaced += value / seconds
            else:
                ratios[place] = value / seconds
        watts = np.atleast_1d(np.asarray(joules, dtype=np.float64)) / seconds
        kept = slice(-self._KEPT, None)
        self._busy = np.vstack((self._busy, ratios))[kept]
        self._unplaced = np.append(self._unplaced, unplaced)[kept]
        self._watts = np.vstack((self._watts.reshape(-1, watts.size), watts))[kept]
        smears = np.broadcast_to(smear, watts.shape)
        self._smear = np.vstack((self._smear.reshape(-1, watts.size), smears))[kept]
        self._seconds = np.append(self._seconds, seconds)[kept]
        self._until = np.append(self._until, until)[kept]
        self._solve(idle_watts, others)

    def watts(self, key: T) -> float:
        """Watts above idle; the pooled mean for a model never seen."""
        place = self._place.get(key)
        value = self._pooled if place is None else float(self._power[place])
        # A model that seems to take nothing still takes something.
        return max(value, self._LEAST_WATTS_RATIO * self._pooled) or 1.0

    def trusted_ratio(self, busy_ratios: Mapping[T, float]) -> float:
        """Return the models' part of what a window differs from what they should take.

        All of it where nothing else is seen to take power, or their watts are not known.
        """
        expected_watts = sum(r * self.watts(key) for key, r in busy_ratios.items())
        least_watts = self._LEAST_WATTS_RATIO * self._pooled
        if (
            self._others_variance <= 0
            or not busy_ratios.keys() <= self._place.keys()
            or all(self.watts(key) <= least_watts for key in busy_ratios)
        ):
            return 1.0
        of_models = self._relative_variance * expected_watts**2
        return of_models / (of_models + self._others_variance)

    def errors(self) -> dict[T, tuple[float, float]]:
        """Return mean watts by model over the windows, and the half width of their 95 % interval.

        The half width is NaN if the windows do not determine it.
        """
        if not len(self._busy):
            return {}
        ratios = self._busy.mean(axis=0)
        return {
            key: (ratio * float(self._power[place]), ratio * float(self._error[place]))
            for key, place in self._place.items()
            if (ratio := float(ratios[place])) > 0
        }

    def effective_windows(self, key: T) -> float:
        """Independent windows that would give an error as large; NaN if it is unknown."""
        return float(self._worth[self._place[key]])

    def forget(self, key: T) -> None:
        """Remove a model that is no longer served."""
        place = self._place.pop(key, None)
        if place is not None:
            self._unplaced = self._unplaced + self._busy[:, place]
            self._busy[:, place] = self._power[place] = 0.0

    def _forget_the_idlest(self) -> None:
        """Make room, if a model's windows are as good as forgotten."""
        seen = np.square(self._busy).sum(axis=0)
        key = min(self._place, key=lambda key: seen[self._place[key]])
        if seen[self._place[key]] < self._FORGOTTEN * float(seen.max()):
            self.forget(key)

    def _placed(self, key: T) -> int | None:
        place = self._place.get(key)
        if place is None and len(self._place) == self._MOST_MODELS:
            self._forget_the_idlest()
        if place is None and len(self._place) < self._MOST_MODELS:
            free = set(range(self._MOST_MODELS)) - set(self._place.values())
            place = self._place[key] = min(free)
            self._power[place] = self._pooled
            self._error[place] = self._worth[place] = np.nan
        return place

    def _solve(self, idle_watts: float | None, others: power_fit.OtherLoad) -> None:
        used = self._busy.any(axis=0)
        rest_watts = (idle_watts or 0.0) + others.watts
        above = float(self._watts[:, 0].sum()) - rest_watts * len(self._watts)
        ratios = float(self._busy.sum() + self._unplaced.sum())
        self._pooled = max(0.0, above / ratios) if ratios > 0 else 0.0
        if not used.any():
            return
        rest = self._watts - (self._unplaced * self._pooled)[:, None]
        begins = self._until - self._seconds
        follows = np.abs(begins - np.roll(self._until, 1)) < _SAME_INSTANT
        follows[0] = False
        windows = power_fit.Windows(
            self._busy[:, used], rest, self._seconds, self._smear, follows
        )
        found = power_fit.fit(windows, idle_watts, others)
        seen, shown = others.deviation_watts**2, found.residual_variance
        self.others_are_gone = (
            len(self._busy) >= self._ENOUGH and seen > self._GONE_OTHERS * shown
        )
        if self.others_are_gone:
            others = power_fit.NO_OTHER_LOAD
            found = power_fit.fit(windows, idle_watts)
        self._power[used] = found.watts
        self._error[used] = found.half_widths
        self._worth[used] = found.effective_windows
        self.baseline_watts = found.baseline_watts
        self.lag_seconds = found.lag_seconds
        self.others_watts = others.watts
        if idle_watts is not None and len(self._busy) >= self._ENOUGH:
            taken = float(np.square(windows.busy @ found.watts).mean())
            self._divide_variance(found.residual_variance, taken, others)

    def _divide_variance(
        self, residual: float, taken: float, others: power_fit.OtherLoad
    ) -> None:
        """Separate the models' variance from that of other load, in square watts.

        The variance of other load is that of windows without models, or more if the
        models cannot have caused the observed variance. It is 0 if those windows vary
        much less than the others.
        """
        seen = others.deviation_watts**2
        if seen < self._SEEN_OTHERS * residual:
            self._others_variance = 0.0
            return
        most = self._MOST_DEVIATION**2 * taken
        self._others_variance = max(seen, residual - most)
        of_models = min(max(0.0, residual - seen), most)
        self._relative_variance = of_models / taken if taken > 0 else 0.0
