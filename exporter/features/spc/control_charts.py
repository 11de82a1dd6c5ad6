"""The four charts, as steps over standardised samples; one number or whole arrays.

A chart's memory is an array whose first axis are its values: `fresh` at the beginning, and
one `step` for each standardised sample. Further axes may have any shape, so that the code
that monitors one signal also simulates ten thousand runs. On either side, `statistics` are
compared with one positive limit; `run_length` is the mean number of samples to an alarm,
where they are N(shift, spread^2) from the start.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from drift.numerics import run_length as arl

if TYPE_CHECKING:
    from drift.numerics.normal import Floats
    from drift.numerics.run_length import Sides

ChartKind = Literal["shewhart", "ewma", "cusum", "page_hinkley"]

FARTHEST_SIGMA: Final = 20.0
"""Samples are limited to this, so that a chart recovers from one extreme value."""
_CAP: Final = 1.25
"""Cap of a CUSUM in alarm, in limits, so that it can return in bounded time."""

_GUARDED_TOLERANCE: Final = 1e-3
MOST_WIDENING: Final = 3.0
"""Maximum factor of the limits of a learnt baseline over those of a known one."""


@functools.lru_cache(maxsize=512)
def limit_of(chart: Chart, in_control_arl: float, sides: Sides) -> float:
    """The limit at which a false alarm comes every `in_control_arl` samples on average."""
    return arl.limit_for(
        lambda limit: chart.run_length(limit, 0.0, sides), in_control_arl
    )


@functools.lru_cache(maxsize=512)
def guarded_limit(
    chart: Chart, in_control_arl: float, sides: Sides, shift: float, spread: float
) -> tuple[float, bool]:
    """The limit that holds the run length where z is N(shift, spread^2) in control.

    Returns:
        The limit, and whether it holds the run length. One beyond `MOST_WIDENING` limits
        of a known baseline would blind the chart: then it is the widest.
    """
    nominal = limit_of(chart, in_control_arl, sides)
    if shift == 0.0 and spread == 1.0:
        return nominal, True
    widest = MOST_WIDENING * nominal
    # An error of the mean towards the watched side is what brings false alarms.
    worse: Sides = "upper" if sides == "lower" else sides
    try:
        limit = arl.limit_for(
            lambda limit: chart.run_length(limit, shift, worse, spread),
            in_control_arl,
            lowest=nominal,
            highest=widest,
            tolerance=_GUARDED_TOLERANCE,
        )
    except ValueError:
        return widest, False
    return limit * (1.0 + _GUARDED_TOLERANCE), True


@dataclass(frozen=True, slots=True)
class Shewhart:
    """The sample itself: quick at large shifts, blind to small ones (Shewhart 1931)."""

    kind: ChartKind = "shewhart"

    def fresh(self, limit: float, shape: tuple[int, ...] = ()) -> Floats:
        """Return the state without samples, which equals the mean."""
        del limit
        return np.zeros((1, *shape))

    def step(self, memory: Floats, z: Floats, limit: float) -> Floats:
        """The latest sample."""
        del memory, limit
        return np.asarray(z, np.float64)[None]

    def statistics(self, memory: Floats) -> tuple[Floats, Floats]:
        """The sample, and its opposite."""
        return memory[0], -memory[0]

    def run_length(
        self, limit: float, shift: float, sides: Sides, spread: float = 1.0
    ) -> float:
        """Return the average run length, in closed form."""
        return arl.shewhart(limit / spread, shift / spread, sides)


@dataclass(frozen=True, slots=True)
class Ewma:
    """E = (1 - w) E + w z, in its own asymptotic deviations (Roberts 1959).

    Small weights see small shifts; limits are the asymptotic ones from the start.
    """

    weight: float = 0.2
    kind: ChartKind = "ewma"

    def fresh(self, limit: float, shape: tuple[int, ...] = ()) -> Floats:
        """The mean."""
        del limit
        return np.zeros((1, *shape))

    def step(self, memory: Floats, z: Floats, limit: float) -> Floats:
        """One step of the average."""
        del limit
        return (1.0 - self.weight) * memory + self.weight * z

    def statistics(self, memory: Floats) -> tuple[Floats, Floats]:
        """The average over its deviation, and its opposite."""
        standard = memory[0] / math.sqrt(self.weight / (2.0 - self.weight))
        return standard, -standard

    def run_length(
        self, limit: float, shift: float, sides: Sides, spread: float = 1.0
    ) -> float:
        """Return the average run length, by an integral equation."""
        return arl.ewma(self.weight, limit / spread, shift / spread, sides)


@dataclass(frozen=True, slots=True)
class Cusum:
    """S = max(0, S ± z - k), the optimum for a shift of 2 k (Page 1954, Moustakides 1986).

    `head_start` 0.5 is Lucas and Crosier's fast initial response: a shift that is
    present at the start is detected in about 60 % of the time.
    """

    reference: float = 0.5
    head_start: float = 0.0
    kind: ChartKind = "cusum"

    def fresh(self, limit: float, shape: tuple[int, ...] = ()) -> Floats:
        """Return the state with both sums at the head start."""
        return np.full((2, *shape), self.head_start * limit)

    def step(self, memory: Floats, z: Floats, limit: float) -> Floats:
        """One step of both sums."""
        return _sums(memory, z, self.reference, limit)

    def statistics(self, memory: Floats) -> tuple[Floats, Floats]:
        """The two sums."""
        return memory[0], memory[1]

    def run_length(
        self, limit: float, shift: float, sides: Sides, spread: float = 1.0
    ) -> float:
        """Return the average run length, by an integral equation."""
        return arl.cusum(
            self.reference / spread,
            limit / spread,
            shift / spread,
            head_start=self.head_start,
            sides=sides,
        )


@dataclass(frozen=True, slots=True)
class PageHinkley:
    """A CUSUM that keeps learning its mean (Page 1954, Hinkley 1971).

    Its statistic is m = sum(z - mean - delta), less the least m so far. `learnt_from`
    samples are the basis of the first mean; infinitely many make it a CUSUM with k =
    `delta`, and that one's ARL is used for the limit. A shift that is slower than the
    learning of the mean is deliberately not detected.
    """

    delta: float = 0.25
    learnt_from: float = math.inf
    kind: ChartKind = "page_hinkley"

    def fresh(self, limit: float, shape: tuple[int, ...] = ()) -> Floats:
        """Return the initial state: up, down, sum and number of samples."""
        del limit
        return np.zeros((4, *shape))

    def step(self, memory: Floats, z: Floats, limit: float) -> Floats:
        """One step; the mean is that of the samples before this one."""
        mean = memory[2] / (self.learnt_from + memory[3])
        sums = _sums(memory[:2], z - mean, self.delta, limit)
        if not math.isfinite(self.learnt_from):
            return np.concatenate([sums, memory[2:]])
        # Not while in alarm: it would learn the fault, and the alarm would end.
        in_control = sums.max(axis=0) <= limit
        learnt = np.stack([memory[2] + in_control * z, memory[3] + in_control])
        return np.concatenate([sums, learnt])

    def statistics(self, memory: Floats) -> tuple[Floats, Floats]:
        """Return the distance of the sum from its minimum, and from its maximum."""
        return memory[0], memory[1]

    def run_length(
        self, limit: float, shift: float, sides: Sides, spread: float = 1.0
    ) -> float:
        """Return the average run length of the CUSUM with a known mean."""
        return arl.cusum(
            self.delta / spread, limit / spread, shift / spread, sides=sides
        )


Chart = Shewhart | Ewma | Cusum | PageHinkley


def _sums(memory: Floats, z: Floats, reference: float, limit: float) -> Floats:
    moved = np.stack([memory[0] + z - reference, memory[1] - z - reference])
    return np.asarray(np.clip(moved, 0.0, _CAP * limit), np.float64)


def beyond(chart: Chart, memory: Floats, limit: float, sides: Sides) -> Floats:
    """Return whether the watched statistic is beyond the limit."""
    upper, lower = chart.statistics(memory)
    statistic = {
        "both": np.maximum(upper, lower),
        "upper": upper,
        "lower": lower,
    }[sides]
    return np.asarray(statistic > limit)
