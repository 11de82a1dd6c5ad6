"""Intervals of efficiency figures. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.efficiency.report_model import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_RESAMPLES: Final = 4000
_FEWEST: Final = 5
"""Fewer blocks or pairs carry no interval."""
_Z: Final = 1.959964
_BOUNDS: Final = (2.5, 97.5)


def ratio_of_sums(above: ArrayLike, below: ArrayLike, *, seed: int) -> Interval:
    """Sum over sum, as joules over inferences, over blocks of one level.

    Percentile bootstrap over the blocks; neighbours are taken as independent, which
    makes the interval too narrow where power drifts.
    """
    tops = np.asarray(above, np.float64)
    bottoms = np.asarray(below, np.float64)
    estimate = float(tops.sum() / bottoms.sum())
    if tops.size < _FEWEST:
        return Interval(estimate=estimate, low=None, high=None)
    drawn = _draws(tops.size, seed)
    sums = bottoms[drawn].sum(axis=1)
    ratios = tops[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    return _interval(estimate, ratios)


def median_ratio(above: ArrayLike, below: ArrayLike, *, seed: int) -> Interval:
    """Median of the ratios of pairs measured one right after the other.

    Percentile bootstrap over the pairs.
    """
    ratios = np.asarray(above, np.float64) / np.asarray(below, np.float64)
    estimate = float(np.median(ratios))
    if ratios.size < _FEWEST:
        return Interval(estimate=estimate, low=None, high=None)
    return _interval(estimate, np.median(ratios[_draws(ratios.size, seed)], axis=1))


def paired_change(before: ArrayLike, after: ArrayLike) -> Interval:
    """Change of a proportion on the same rows, from right or wrong on each.

    Wald interval with Laplace adjustment of the discordant cells (Bonett and Price,
    Journal of Educational and Behavioral Statistics 37(4), 2012), which does not
    collapse to a point where no row changed.
    """
    first, second = np.asarray(before, bool), np.asarray(after, bool)
    rows = first.size
    gained = int(np.count_nonzero(~first & second))
    lost = int(np.count_nonzero(first & ~second))
    up, down = (gained + 1) / (rows + 2), (lost + 1) / (rows + 2)
    middle = up - down
    half = _Z * math.sqrt((up + down - middle**2) / (rows + 2))
    return Interval(
        estimate=(gained - lost) / rows,
        low=max(-1.0, middle - half),
        high=min(1.0, middle + half),
    )


def _draws(size: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, size, size=(_RESAMPLES, size))


def _interval(estimate: float, drawn: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(drawn, _BOUNDS)
    return Interval(estimate=estimate, low=float(low), high=float(high))
