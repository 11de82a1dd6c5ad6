"""Jensen-Shannon distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from drift.comparison import Null, chi_mean, chi_square_quantile
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison


class JensenShannon(Statistic):
    """Jensen-Shannon distance, between 0 and 1.

    Formula: sqrt((KL(p | m) + KL(q | m)) / 2) with m = (p + q) / 2 and logarithms to
    base 2, over coarse bins, half a row added to every bin.

    Null: the root of h / (8 ln 2) times a chi-square variable, (bins - 1) degrees.

    Reference: Lin (1991); Endres, Schindelin (2003) for the root being a metric.

    Example:
        >>> from drift.statistics.example import compare
        >>> [round(float(value), 3) for value in JensenShannon().distance(compare())]
        [0.063, 0.421, 0.042]

    When not to use it: to see how far values shifted; once the laws no longer overlap it
    stays at 1.
    """

    kind: ClassVar[str] = "jensen_shannon"
    title: ClassVar[str] = "Jensen-Shannon"
    ordered: ClassVar[bool] = False
    classic: ClassVar[float | None] = 0.1

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The distance to base 2, (features,)."""
        p, q = comparison.shares
        middle = np.where(p + q > 0, (p + q) / 2.0, 1.0)
        terms = _entropy_terms(p, middle) + _entropy_terms(q, middle)
        divergence = np.maximum(terms.sum(axis=1) / 2.0, 0.0)
        return comparison.over_bins(np.sqrt(divergence))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, from the chi-square law."""
        freedom = comparison.baseline.freedom
        unit = np.sqrt(comparison.spread / (8.0 * np.log(2.0)))
        return Null(
            chi_mean(freedom) * unit, np.sqrt(chi_square_quantile(freedom)) * unit
        )


def _entropy_terms(
    share: NDArray[np.float64], middle: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.asarray(share * np.log2(np.where(share > 0, share, middle) / middle))
