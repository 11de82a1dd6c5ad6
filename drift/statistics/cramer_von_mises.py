"""Cramer-von Mises statistic."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal

import numpy as np

from drift.comparison import Null
from drift.projection import ORDERED_CELLS
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison

_MEAN: Final = 1.0 / 6.0
_QUANTILE: Final = 1.16786


class CramerVonMises(Statistic):
    """Squared difference of the cumulative shares, averaged over the pooled sample.

    Formula: (n m / (n + m)) integral (F - G)^2 dH, H the pooled cumulative share, with
    the fine cells' edges and trapezia within cells.

    Null: phi times the omega-square law (mean 1/6); smaller for discrete features.

    Reference: Anderson (1962), "On the distribution of the two-sample Cramer-von Mises
    criterion"; its quantile 1.168 is in Anderson, Darling (1952).

    Example:
        >>> from drift.statistics.example import compare
        >>> values = CramerVonMises().distance(compare())
        >>> [round(float(value), 2) for value in values]
        [0.19, 60.97, nan]

    When not to use it: as a size of change, since it grows with the number of rows;
    for categories.
    """

    kind: Literal["cramer_von_mises"] = "cramer_von_mises"
    ordered: ClassVar[bool] = True
    classic: ClassVar[float | None] = None

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The statistic, (features,), NaN for categories."""
        numeric = comparison.baseline.numeric
        n = comparison.size[:numeric]
        m = comparison.baseline.size[:numeric]
        both = np.maximum(n + m, 1.0)

        def integral(gaps: NDArray[np.float64], part: slice) -> NDArray[np.float64]:
            start = np.zeros_like(gaps)
            start[:, 1:] = gaps[:, :-1]
            # Of the squared line from start to gap within each cell, times 3.
            squared = gaps * gaps + start * (start + gaps)
            window = comparison.window.cells[part, :ORDERED_CELLS]
            weight = np.add(window, comparison.baseline.ordered[part], dtype=np.int64)
            return np.asarray(np.einsum("fc,fc->f", squared, weight))

        total = comparison.of_gaps(integral) / 3.0 * (n * m / both**2)
        return comparison.guarded(comparison.padded(total))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, the omega-square law."""
        phi = (
            comparison.ordered_spread
            / comparison.harmonic[: comparison.baseline.numeric]
        )
        return Null(comparison.padded(_MEAN * phi), comparison.padded(_QUANTILE * phi))
