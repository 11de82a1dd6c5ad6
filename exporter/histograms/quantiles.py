"""Confidence intervals of sample quantiles from order statistics, distribution-free.

For independent observations; `process_quantiles` has the intervals of dependent ones.

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
from typing import TYPE_CHECKING

import numpy as np

from drift.numerics import normal
from exporter.histograms.buckets import GROWTH, LAST_SLOT, UPPER, ZERO_THRESHOLD

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
    return math.ceil(math.log(tail) / math.log1p(-min(q, 1.0 - q)))


def supports(count: float, q: float, confidence: float = 0.95) -> bool:
    """Return whether `count` observations carry a two-sided interval for the q-quantile.

    Raises:
        ValueError: if q or the confidence is not inside (0, 1).
    """
    return count >= minimum_count(q, confidence)


def interval_ranks(
    count: int, q: float, confidence: float = 0.95, effective: float | None = None
) -> tuple[float, float] | None:
    """Fractional ranks l < u so that [X_(l), X_(u)] covers the true q-quantile.

    Either tail holds (1 - confidence) / 2. Ranks are real numbers, as in Hutson 1999:
    whole ranks can only hold their level conservatively (97.5 % where 95 % is asked
    for when 10 observations lie beyond the quantile). The Cornish-Fisher expansion of
    the binomial quantile (Abramowitz and Stegun 26.2.49, with the lattice's
    continuity terms) stands in for the inverse of the incomplete beta function: off by
    at most 0.02 ranks at 95 %. None when the sample does not support the interval.

    Dependent observations tell as much as `effective` independent ones, at most `count`:
    the ranks of so many are stretched to the sample.

    Raises:
        ValueError: if q or the confidence is not inside (0, 1).
    """
    worth = float(count) if effective is None else min(effective, float(count))
    if not supports(worth, q, confidence):
        return None
    z = normal.quantile(1.0 - _tail(q, confidence))
    variance = q * (1.0 - q)
    sigma = math.sqrt(worth * variance)
    centre = worth * q + 0.5 + (1.0 - 2.0 * q) * (z * z - 1.0) / 6.0
    narrowing = (z * z + 2.0 - 2.0 * variance * (7.0 - z * z)) / (72.0 * sigma)
    reach = z * (sigma - narrowing)
    stretch = count / worth
    low, high = (
        (end - 0.5) * stretch + 0.5 for end in (centre - reach, centre + reach)
    )
    return max(low, 1.0), min(high, float(count))


@dataclass(frozen=True, slots=True)
class RankedBuckets:
    """A histogram's observations by rank: where the r-th smallest of them lies.

    `counts` start at `first_slot`; `running[i]` are the observations up to the end of
    `counts[i]`, the zero bucket's included. `lowest` and `highest` are the exact
    extremes, or infinite where they are unknown.
    """

    first_slot: int
    counts: NDArray[np.int64]
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
        extreme = self._extreme(rank)
        if extreme is not None:
            return extreme
        low, high = self._bounds(self.slot(rank))
        return self._clipped(2.0 * low / (low + high) * high)

    def between(self, low_rank: float, high_rank: float) -> tuple[float, float]:
        """From the value of one real rank to that of another, never too narrow.

        The observations of a bucket stand at equal ratios, between which a real rank
        interpolates. That is taken on trust only where it can do no harm: both ranks in
        one bucket, or a bucket unlike its neighbours (a constant, a timeout, the end of
        a range), give the bucket's outer edge. Not seen, and then too narrow by up to a
        bucket: values on a grid about as coarse as the buckets, one value in each.
        """
        apart = self.slot(math.floor(low_rank)) != self.slot(math.ceil(high_rank))
        return (
            self._interpolated(low_rank, upwards=False, inside=apart),
            self._interpolated(high_rank, upwards=True, inside=apart),
        )

    def _interpolated(self, rank: float, *, upwards: bool, inside: bool) -> float:
        below = math.floor(rank)
        low = self._position(below, upwards=upwards, inside=inside)
        if rank == below:
            return low
        high = self._position(below + 1, upwards=upwards, inside=inside)
        return low + (rank - below) * (high - low)

    def _position(self, rank: int, *, upwards: bool, inside: bool) -> float:
        extreme = self._extreme(rank)
        if extreme is not None:
            return extreme
        slot = self.slot(rank)
        low, high = self._bounds(slot)
        if not (inside and self._is_smooth(slot)):
            return self._clipped(high if upwards else low)
        place = slot - self.first_slot
        own = int(self.counts[place])
        share = (rank - int(self.running[place]) + own - 0.5) / own
        return self._clipped(low * GROWTH**share)

    def _is_smooth(self, slot: int) -> bool:
        """Return whether a bucket's neighbours hold about as much as it does.

        That is: together no less than the bucket, and each within a factor of two, give
        or take three standard deviations of a Poisson count.
        """
        own, below, above = (self._held(s) for s in (slot, slot - 1, slot + 1))
        if not slot or own > below + above:
            return False
        pairs = [sorted((own, neighbour)) for neighbour in (below, above)]
        return all(more <= 2 * less + 3.0 * math.sqrt(more) for less, more in pairs)

    def _extreme(self, rank: int) -> float | None:
        if rank == 1 and self.lowest > -math.inf:
            return self.lowest
        if rank == self.count and self.highest < math.inf:
            return self.highest
        return None

    def slot(self, rank: int) -> int:
        """The slot of a rank."""
        if rank <= self.zero_count:
            return 0
        return self.first_slot + int(np.searchsorted(self.running, rank))

    def _held(self, slot: int) -> int:
        place = slot - self.first_slot
        return int(self.counts[place]) if 0 <= place < self.counts.size else 0

    def _bounds(self, slot: int) -> tuple[float, float]:
        if slot == 0:
            return 0.0, ZERO_THRESHOLD
        low, high = float(UPPER[slot - 1]), float(UPPER[slot])
        if slot == LAST_SLOT and high < self.highest < math.inf:
            high = self.highest
        return low, high

    def _clipped(self, value: float) -> float:
        return min(max(value, self.lowest), self.highest)


def _tail(q: float, confidence: float) -> float:
    if not 0.0 < q < 1.0:
        raise ValueError(f"q is {q!r}; an interval needs a quantile inside (0, 1)")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence!r}; it lies inside (0, 1)")
    return (1.0 - confidence) / 2.0
