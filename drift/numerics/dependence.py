"""Effective sample size of dependent observations.

Requests share batches, queues and slow spells. A share estimated from n of them then has
phi times the variance that n independent ones would give it, and they are worth n / phi.
Phi is measured from sums over blocks of consecutive observations (batch means): the
blocks differ phi times as much as independent observations would (`variance_ratio`). A
block that is shorter than the dependence shows too little of it. Which length counts
depends on what is known: slots of time (`inflation`), single observations in order
(`sequence_inflation`), or, in `drift/dispersion.py`, hundreds of columns in each of which
a false alarm must be rare. Where blocks cannot show it, phi follows from a model of the
dependence: copies of rows (`copies_inflation`), or the residuals of a fitted curve
(`fit_inflations`). Few blocks make phi itself uncertain: Student's t stands in for the
normal quantile.

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

from drift.numerics import normal

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
_MOST_CORRELATION: Final = 0.98
_HALVINGS: Final = 10
_LEAST_WORTH: Final = 2.0


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
        return count / (self.phi * widening(self.freedom, confidence) ** 2)


UNKNOWN: Final = Inflation(1.0, 0.0)
"""Of observations whose dependence cannot be measured: no degree of freedom."""


def inflation(counts: Floats, events: Floats) -> Inflation | None:
    """Variance inflation of the share of events, from consecutive slots of time.

    Up to `MOST_BLOCKS` blocks of about equally many observations are made of the slots.
    The bias of a length is -c / length, so where a block holds two slots and more, phi is
    extrapolated from both lengths to an infinite one (the "lugsail" window). It is never
    taken to be less than that of the blocks, nor than 1.

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
    long = float(variance_ratio(np.bincount(place, events).astype(np.float64), sizes))
    ratio = counts.size / blocks
    if ratio >= 2.0:  # noqa: PLR2004 - a block of two slots and more
        short = float(variance_ratio(events, counts))
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
        sums = in_pairs(sums)
        length *= 2
    return found


def fit_inflations(times: Floats, residuals: Floats, basis: Floats) -> list[Inflation]:
    """Variance inflation of a least-squares fit along each direction, from its residuals.

    The directions are the columns of `basis` (N, K), each less those before it. Blocks of
    few values do not contain correlations over longer times, and a fitted curve takes
    slow noise out of its residuals. So phi is what noise of a first-order autoregression
    does to the fit, whose correlation is the one that makes residuals as correlated as
    they are. The freedom is the number that the residuals are worth (Satterthwaite).

    Args:
        times: of each value (N,), in steps of 1; there may be gaps.
        residuals: of the values from the fit (N,).
        basis: the functions that were fitted, at these times.
    """
    basis = np.linalg.qr(basis)[0]
    count, fitted = basis.shape
    apart = np.abs(times[:, None] - times)
    near = np.diff(times) == 1
    total = float(residuals @ residuals)
    if total <= 0 or not near.any():
        return [Inflation(1.0, float(count - fitted))] * fitted
    found = float((residuals[1:] * residuals[:-1])[near].sum()) / total

    def of_residuals(correlation: float) -> tuple[Floats, Floats]:
        noise = correlation**apart
        along = basis @ (basis.T @ noise)
        inner = basis.T @ noise @ basis
        return noise - along - along.T + basis @ inner @ basis.T, np.diagonal(inner)

    low, high = 0.0, _MOST_CORRELATION
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        seen, _ = of_residuals(middle)
        lagged = float(np.diagonal(seen, 1)[near].sum() / np.trace(seen))
        low, high = (middle, high) if lagged < found else (low, middle)
    seen, along = of_residuals(low)
    trace = float(np.trace(seen))
    freedom = max(trace**2 / float(np.square(seen).sum()), _LEAST_WORTH)
    phis = (count - fitted) / trace * along
    return [Inflation(max(float(phi), 1.0), freedom) for phi in phis]


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


def variance_ratio(
    sums: Floats, counts: Floats, variance: Floats | float | None = None
) -> Floats:
    """Return phi of sums over blocks, along the first axis.

    sum (s_b - n_b m)^2 / (n_b v) / (B - 1), with m the mean of all observations; its
    expectation for independent ones is 1. Blocks without observations do not count. 1 if
    the variance is 0, and for a single block.

    Args:
        sums: of each block (B, ...).
        counts: observations of each block, of the same or a broadcast shape.
        variance: of one observation; by default that of a share, m (1 - m).
    """
    sizes = np.maximum(counts, 1.0)
    mean = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
    if variance is None:
        variance = mean * (1.0 - mean)
    squares = (np.square(sums - counts * mean) / sizes).sum(axis=0)
    varied = variance * (np.count_nonzero(counts, axis=0) - 1.0)
    usable = varied > 0
    return np.where(usable, squares / np.where(usable, varied, 1.0), 1.0)


def in_pairs(sums: Floats) -> Floats:
    """Return the sums of blocks (B, ...) of twice the length; a last odd one is left out."""
    even = sums.shape[0] // 2 * 2
    return np.asarray(sums[:even:2] + sums[1:even:2])


@lru_cache(maxsize=256)
def widening(freedom: float, confidence: float) -> float:
    """Student's t quantile over the normal one, two-sided: 1.15 for 9 degrees at 95 %."""
    z = normal.quantile((1.0 + confidence) / 2.0)
    # Beyond that the two differ by 0.6 % at most.
    return student_deviation(z, min(freedom, _MOST_FREEDOM)) / z
