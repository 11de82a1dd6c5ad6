"""Effective sample size of dependent observations.

Requests share batches, queues and slow spells. A share estimated from n of them then has
phi times the variance that n independent ones would give it, and they are worth n / phi.
Phi is the long-run variance of the indicator over q (1 - q). It is measured from sums
over blocks of consecutive observations (batch means): the blocks differ phi times as
much as independent observations would. A block that is shorter than the dependence shows
too little of it: the bias is -c / length, so that of two lengths the bias is extrapolated
away (the "lugsail" window). Few blocks make phi itself uncertain: Student's t with the
number of blocks less one stands in for the normal quantile.

References:
    B. Schmeiser, Batch size effects in the analysis of simulation output, Operations
    Research 30 (1982) 556-568: ten to thirty batches, with Student's t.
    D. Vats, J. M. Flegal, Lugsail lag windows for estimating time-average covariance
    matrices, Biometrika 109 (2022) 735-750: the extrapolation over block lengths.
    G. S. Fishman, L. S. Yarberry, An implementation of the batch means method, INFORMS
    Journal on Computing 9 (1997) 296-310: batches that double until they are uncorrelated.
    D. L. Wallace, Bounds on normal approximations to Student's and the chi-square
    distributions, Annals of Mathematical Statistics 30 (1959) 1121-1130.
    P. Heidelberger, P. A. W. Lewis, Quantile estimation in dependent sequences,
    Operations Research 32 (1984) 185-209: exceedances of the sample quantile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.numerics import normal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_BLOCKS: Final = 10
LEAST_BLOCKS: Final = 4
"""Blocks below which there is no estimate: Student's t of 2 degrees is 4.3 deviations."""
LEAST_FREEDOM: Final = 4.0
"""Degrees of freedom below which one batch or value dominates the variance."""
LEAST_BATCHES: Final = 16
"""Batches below which their correlation cannot be tested."""
_NIL_CORRELATION: Final = 0.1
_MOST_EXPONENT: Final = 100.0
_ROUNDING: Final = 1e-12
_MOST_FREEDOM: Final = 200.0


@dataclass(frozen=True, slots=True)
class Inflation:
    """Variance inflation phi, at least 1, measured with `freedom` degrees of freedom."""

    phi: float
    freedom: float
    length: int = 1
    """Single observations in a batch, where batches were made of them."""

    def deviations(self, z: float) -> float:
        """Return how many standard deviations of independent observations `z` becomes."""
        return math.sqrt(self.phi) * student_deviation(z, self.freedom)

    def effective_samples(self, count: float, confidence: float = 0.95) -> float:
        """Return the number of independent observations that give as wide an interval.

        It is count / phi, reduced by the cost of estimating phi: the squared ratio of
        Student's t to the normal quantile.
        """
        return count / (self.phi * widening(int(self.freedom), confidence) ** 2)


UNKNOWN: Final = Inflation(1.0, 0.0)
"""Of observations whose dependence cannot be measured: no degree of freedom."""


def inflation(counts: Floats, events: Floats) -> Inflation | None:
    """Variance inflation of the share of events, from consecutive slots of time.

    Up to `MOST_BLOCKS` blocks of about equally many observations are made of the slots.
    Where a block holds two slots and more, phi is extrapolated from both lengths to an
    infinite one; it is never taken to be less than that of the blocks, nor than 1.

    Args:
        counts: observations of each slot (S,), in order of time; slots may be empty.
        events: how many of them were events (S,).

    Returns:
        None with fewer than `LEAST_BLOCKS` blocks. A share of 0 or 1 varies in no block:
        its phi is 1.
    """
    held = counts > 0
    counts, events = counts[held], events[held]
    total = counts.sum()
    middle = np.cumsum(counts) - 0.5 * counts
    place = np.floor(MOST_BLOCKS * middle / max(total, 1.0)).astype(np.int64)
    sizes = np.bincount(place, counts).astype(np.float64)
    blocks = int(np.count_nonzero(sizes))
    if blocks < LEAST_BLOCKS:
        return None
    long = variance_ratio(sizes, np.bincount(place, events).astype(np.float64))
    ratio = counts.size / blocks
    if ratio >= 2.0:  # noqa: PLR2004 - a block of two slots and more
        short = variance_ratio(counts, events)
        long = max(long, (ratio * long - short) / (ratio - 1.0))
    return Inflation(max(long, 1.0), blocks - 1)


def copies_inflation(groups: NDArray[np.int64]) -> Inflation:
    """Variance inflation of a share of rows (n,) of which those of one group are copies.

    sum (m^2) / n with m the rows of each group: copies are all events or none. Where they
    are only alike this is too much, never too little.
    """
    _, sizes = np.unique(groups, return_counts=True)
    count = max(int(sizes.sum()), 1)
    phi = max(float(np.square(sizes.astype(np.float64)).sum()) / count, 1.0)
    # Beyond 200 degrees Student's t is the normal within 0.6 %.
    return Inflation(phi, max(1.0, min(count / phi - 1.0, _MOST_FREEDOM)))


def sequence_inflation(values: Floats, *, bounded: bool = False) -> Inflation | None:
    """Variance inflation of the sum of single observations, in order of time.

    Batches double in length as long as any longer ones, down to `LEAST_BATCHES` of them,
    are correlated: their lag-1 correlation is above 0.1 and a standard error. Of the
    shortest that are not, phi is the variance over that of single observations, times
    1 + 2 r for what correlation r is left, which is the "lugsail" extrapolation. Of single
    observations half a standard error of r is left out, since only positive ones count.
    The longest batches will do where r is below 0.1 and two standard errors.

    Args:
        values: one observation each (N,), of any scale; their mean is removed.
        bounded: they are of a few values, like -1, 0 and 1, and have no outliers.

    Returns:
        None where all batches are correlated, or with fewer than `LEAST_BATCHES` values.
        Values that do not vary have phi 1. The freedom is sum(s^2)^2 / sum(s^4) over the
        batch sums s: a third of their number where they are normal, and about the number
        of outliers where these dominate. Of bounded values it is a third of the number of
        batches, and all of them where single observations are not correlated.
    """
    sums, found, length, single = values, None, 1, 0.0
    while sums.size >= LEAST_BATCHES:
        # Anew at each length: a last batch that is not full was left out.
        sums = sums - sums.mean()
        squares = np.square(sums)
        total = float(squares.sum())
        single = single or total / sums.size
        if total <= _ROUNDING * single * values.size:
            return found or Inflation(1.0, float(sums.size))
        correlation = float(sums[1:] @ sums[:-1]) / total
        error = 1.0 / math.sqrt(sums.size)
        phi = total / sums.size / length / single
        longest = sums.size < 2 * LEAST_BATCHES
        nil = correlation <= _NIL_CORRELATION + error
        if not nil:
            found = None
        will_do = longest and correlation <= _NIL_CORRELATION + 2.0 * error
        if found is None and (nil or will_do):
            left = correlation - (0.5 * error if length == 1 else 0.0)
            phi *= 1.0 + 2.0 * max(left, 0.0)
            freedom = total * total / float(squares @ squares)
            if bounded:
                freedom = sums.size / (1.0 if length == 1 else 3.0)
            found = Inflation(max(phi, 1.0), freedom, length)
        whole = sums.size // 2 * 2
        sums = sums[:whole:2] + sums[1:whole:2]
        length *= 2
    return found


def student_deviation(z: float, freedom: float) -> float:
    """Student's t that is exceeded as rarely as the normal deviation `z`.

    By Wallace's approximation, without scipy, which the sidecar does not load. It takes
    fractional degrees and errs towards the wider: at z = 3 by 2.7 % with 4 degrees and
    0.3 % with 9, at 1.96 by 1.1 % with 3. Example: 3.0 with 9 degrees is 4.11.
    """
    scaled = z * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)
    exponent = scaled * scaled / freedom
    if exponent > _MOST_EXPONENT:
        return math.inf
    return math.sqrt(freedom * math.expm1(exponent))


def variance_ratio(counts: Floats, events: Floats) -> float:
    """Return the variance of the blocks' shares (B,), relative to independent events.

    sum (e_b - p n_b)^2 / n_b / (p (1 - p)) / (B - 1), with p the share in all; its
    expectation for independent events is 1. Blocks without observations do not count.
    1 where p is 0 or 1, and for a single block.
    """
    held = counts > 0
    counts, events = counts[held], events[held]
    share = events.sum() / counts.sum() if counts.size else 0.0
    if counts.size < 2 or not 0.0 < share < 1.0:  # noqa: PLR2004
        return 1.0
    squares = np.square(events - share * counts) / counts
    return float(squares.sum() / (share * (1.0 - share)) / (counts.size - 1))


@lru_cache(maxsize=256)
def widening(freedom: int, confidence: float) -> float:
    """Student's t quantile over the normal one, two-sided: 1.15 for 9 degrees at 95 %."""
    z = normal.quantile((1.0 + confidence) / 2.0)
    # Beyond that the two differ by 0.6 % at most.
    return student_deviation(z, min(float(freedom), _MOST_FREEDOM)) / z
