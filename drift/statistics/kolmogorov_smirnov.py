"""Kolmogorov-Smirnov distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from drift.comparison import Null
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison

# Mean sqrt(pi/2) ln 2 and 99.9 % quantile of Kolmogorov's law.
_MEAN: Final = 0.8687311606
_QUANTILE: Final = 1.9494746346


class KolmogorovSmirnov(Statistic):
    """Largest difference between the cumulative shares, between 0 and 1.

    Formula: max_c |F(c) - G(c)| over the edges of the fine cells, which is at most the
    exact distance and less by no more than the largest share of a single cell.

    Null: sqrt(h) times Kolmogorov's law; smaller for discrete features.

    Reference: Kolmogorov (1933); Smirnov (1939).

    Example:
        >>> from drift.statistics.example import compare
        >>> values = KolmogorovSmirnov().distance(compare())
        >>> [round(float(value), 3) for value in values]
        [0.037, 0.425, nan]

    When not to use it: for categories, for changes in the tails alone.
    """

    kind: ClassVar[str] = "kolmogorov_smirnov"
    title: ClassVar[str] = "Kolmogorov-Smirnov"
    ordered: ClassVar[bool] = True
    classic: ClassVar[float | None] = 0.1

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The distance, (features,), NaN for categories."""
        furthest = comparison.of_gaps(
            lambda gaps, _: np.asarray(np.abs(gaps).max(axis=1, initial=0.0))
        )
        return comparison.guarded(comparison.padded(furthest))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, Kolmogorov's law."""
        root = np.sqrt(comparison.ordered_spread)
        mean, bound = (np.minimum(each * root, 1.0) for each in (_MEAN, _QUANTILE))
        return Null(comparison.padded(mean), comparison.padded(bound))
