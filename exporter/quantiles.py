"""How far a sample quantile can be trusted: order-statistic intervals, no distribution.

Let B be the number of observations at or below the true q-quantile x_q among n
independent ones: B is binomial(n, q) whatever the (continuous) distribution. So
P(X_(l) > x_q) = P(B < l) and P(X_(u) < x_q) = P(B >= u), where X_(r) is the r-th
smallest observation; choosing l and u that put half of 1 - confidence into either tail
gives a confidence interval for x_q.

References:
    W. J. Conover, Practical Nonparametric Statistics, 3rd ed. 1999, section 3.2.
    G. J. Hahn, W. Q. Meeker, Statistical Intervals, 1991, section 5.2.
    A. D. Hutson, Calculating nonparametric confidence intervals for quantiles using
    fractional order statistics, Journal of Applied Statistics 26 (1999) 343-353.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from exporter.buckets import GROWTH, UPPER, ZERO_THRESHOLD

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Products such as 0.07 * 100 miss their integer by rounding: two units in the last
# place are given back before rounding up.
_ROUNDING = 1.0 - 2.0**-51


def quantile_rank(count: int, q: float) -> int:
    """The rank, 1 to `count`, of the observation that is the sample's q-quantile.

    The inverse of the empirical distribution function: the least rank r with
    r / count >= q (Hyndman and Fan 1996, type 1; numpy's "inverted_cdf").

    Raises:
        ValueError: if q is not in [0, 1] or the sample is empty.
    """
    if count < 1:
        raise ValueError(f"count is {count}; a quantile needs at least 1 observation")
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q is {q!r}; a quantile lies in 0 to 1")
    return min(max(math.ceil(q * count * _ROUNDING), 1), count)


def minimum_count(q: float, confidence: float = 0.95) -> int:
    """The least number of observations with a two-sided interval inside the sample.

    The smallest n with (1 - q)^n <= (1 - confidence) / 2 and
    q^n <= (1 - confidence) / 2: the smallest observation then lies below the true
    quantile, and the largest above it, each with the confidence of one side.

    Example:
        >>> minimum_count(0.5), minimum_count(0.99), minimum_count(0.999)
        (6, 368, 3688)

    Raises:
        ValueError: if q or the confidence is not inside (0, 1).
    """
    tail = _tail(q, confidence)
    return math.ceil(math.log(tail) / math.log(max(q, 1.0 - q)))


def supports(count: int, q: float, confidence: float = 0.95) -> bool:
    """Whether `count` observations carry a two-sided interval for the q-quantile.

    Raises:
        ValueError: if q or the confidence is not inside (0, 1).
    """
    return count >= minimum_count(q, confidence)


def interval_ranks(
    count: int, q: float, confidence: float = 0.95
) -> tuple[float, float] | None:
    """Fractional ranks l < u so that [X_(l), X_(u)] covers the true q-quantile.

    Either tail holds (1 - confidence) / 2. Ranks are real numbers, as in Hutson 1999:
    whole ranks can only hold their level conservatively (97.5 % where 95 % is asked
    for when 10 observations lie beyond the quantile). The Cornish-Fisher expansion of
    the binomial quantile (Abramowitz and Stegun 26.2.49, with the lattice's
    continuity terms) stands in for the inverse of the incomplete beta function: off by
    at most 0.02 ranks at 95 %. None when the sample does not support the interval.

    Raises:
        ValueError: if q or the confidence is not inside (0, 1).
    """
    if not supports(count, q, confidence):
        return None
    z = _normal_quantile(1.0 - _tail(q, confidence))
    variance = q * (1.0 - q)
    sigma = math.sqrt(count * variance)
    centre = count * q + 0.5 + (1.0 - 2.0 * q) * (z * z - 1.0) / 6.0
    narrowing = (z * z + 2.0 - 2.0 * variance * (7.0 - z * z)) / (72.0 * sigma)
    reach = z * (sigma - narrowing)
    return max(centre - reach, 1.0), min(centre + reach, float(count))


@dataclass(frozen=True, slots=True)
class RankedBuckets:
    """A histogram's observations by rank: where the r-th smallest of them lies.

    `running[i]` is the number of observations in the first i + 1 slots from
    `first_slot`, the zero bucket's not included.
    """

    first_slot: int
    running: NDArray[np.int64]
    zero_count: int
    count: int
    lowest: float
    highest: float

    def middle(self, rank: int) -> float:
        """The value of a rank, off by at most RELATIVE_ERROR.

        The harmonic mean 2lu / (l + u) of the rank's bucket (l, u] is the one value
        whose relative error is the same at both ends, (u - l) / (u + l) (Masson, Rim,
        Lee, DDSketch, VLDB 2019, lemma 2). The first and last rank are exact.
        """
        if rank <= max(self.zero_count, 1):
            return self.lowest
        if rank == self.count:
            return self.highest
        return self._middle(self._place(rank))

    def interpolated(self, rank: float) -> float:
        """The value of a real rank, between those of its two whole neighbours."""
        below = math.floor(rank)
        low = self._inside(below)
        if rank == below:
            return low
        return low + (rank - below) * (self._inside(below + 1) - low)

    def middle_of_first(self) -> float:
        """The middle of the lowest bucket that is not empty."""
        return self.lowest if self.zero_count else self._middle(self._place(1))

    def middle_of_last(self) -> float:
        """The middle of the highest bucket that is not empty."""
        if self.count == self.zero_count:
            return min(self.highest, ZERO_THRESHOLD)
        return self._middle(self._place(self.count))

    def _middle(self, place: int) -> float:
        low, high = self._bounds(place)
        return self._clipped(2.0 * low / (low + high) * high)

    def _inside(self, rank: int) -> float:
        if rank <= max(self.zero_count, 1) or rank == self.count:
            return self.middle(rank)
        place = self._place(rank)
        before = int(self.running[place - 1]) if place else 0
        own = int(self.running[place]) - before
        share = (rank - self.zero_count - before - 0.5) / own
        return self._clipped(self._bounds(place)[0] * GROWTH**share)

    def _place(self, rank: int) -> int:
        return int(np.searchsorted(self.running, rank - self.zero_count))

    def _bounds(self, place: int) -> tuple[float, float]:
        slot = self.first_slot + place
        return float(UPPER[slot - 1]), float(UPPER[slot])

    def _clipped(self, value: float) -> float:
        return min(max(value, self.lowest), self.highest)


def _tail(q: float, confidence: float) -> float:
    if not 0.0 < q < 1.0:
        raise ValueError(f"q is {q!r}; an interval needs a quantile inside (0, 1)")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence!r}; it lies inside (0, 1)")
    return (1.0 - confidence) / 2.0


@lru_cache(maxsize=64)
def _normal_quantile(probability: float) -> float:
    return NormalDist().inv_cdf(probability)
