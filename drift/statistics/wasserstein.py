"""Wasserstein-1 distance in standard deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from drift.comparison import Null
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison


class Wasserstein(Statistic):
    """Mean distance that values have to move, in reference standard deviations.

    Formula: integral |F(x) - G(x)| dx / sd over the fine grid; the tails count as if
    they lay at the grid's ends, for both the distance and sd. A pure shift by s has the
    distance s / sd.

    Null: sqrt(h) times the integral of a Brownian bridge's modulus; its mean is exact,
    its quantile that of the gamma law with the same two moments.

    Reference: del Barrio, Gine, Matran (1999), "Central limit theorems for the
    Wasserstein distance between the empirical and the true distributions".

    Example:
        >>> from drift.statistics.example import compare
        >>> [round(float(value), 3) for value in Wasserstein().distance(compare())]
        [0.057, 1.056, nan]

    When not to use it: for categories; for constants, which have no deviation; for outliers far beyond the reference's range,
    which the share of values out of range shows.
    """

    kind: ClassVar[str] = "wasserstein"
    title: ClassVar[str] = "Wasserstein-1 / sd"
    ordered: ClassVar[bool] = True
    classic: ClassVar[float | None] = 0.1

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The distance in standard deviations, (features,), NaN for categories."""
        baseline = comparison.baseline
        even = not baseline.profile.grid.cuts

        def moved(gaps: NDArray[np.float64], part: slice) -> NDArray[np.float64]:
            apart = np.abs(gaps)
            if even:
                # Half cells at both ends, where the tails' mass is put.
                ends = apart[:, 0] + apart[:, -2]
                return np.asarray(apart[:, :-1].sum(axis=1) - 0.5 * ends)
            return np.asarray((apart[:, :-1] * baseline.steps(part)).sum(axis=1))

        sd = baseline.sd_cells
        scaled = comparison.of_gaps(moved) / np.where(sd > 0, sd, np.nan)
        return comparison.guarded(comparison.padded(scaled))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, from the Brownian bridge."""
        mean, bound = comparison.baseline.wasserstein_null
        root = np.sqrt(comparison.ordered_spread)
        return Null(comparison.padded(mean * root), comparison.padded(bound * root))
