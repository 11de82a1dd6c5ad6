"""Hellinger distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from drift.comparison import Null, chi_mean, chi_square_quantile
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison


class Hellinger(Statistic):
    """Hellinger distance, between 0 and 1.

    Formula: sqrt(sum_b (sqrt(p_b) - sqrt(q_b))^2 / 2) over coarse bins, half a row
    added to every bin.

    Null: the root of h / 8 times a chi-square variable, (bins - 1) degrees.

    Reference: Hellinger (1909); Ditzler, Polikar (2011) for drift.

    Example:
        >>> from drift.statistics.example import compare
        >>> [round(float(value), 3) for value in Hellinger().distance(compare())]
        [0.053, 0.359, 0.035]

    When not to use it: to see how far values moved; it only sees how little the laws
    overlap.
    """

    kind: Literal["hellinger"] = "hellinger"
    ordered: ClassVar[bool] = False
    classic: ClassVar[float | None] = 0.1

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The distance, (features,)."""
        p, q = comparison.shares
        squared = ((np.sqrt(p) - np.sqrt(q)) ** 2).sum(axis=1) / 2.0
        return comparison.guarded(np.sqrt(squared))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, from the chi-square law."""
        freedom = comparison.baseline.freedom
        unit = np.sqrt(comparison.spread / 8.0)
        return Null(
            chi_mean(freedom) * unit, np.sqrt(chi_square_quantile(freedom)) * unit
        )
