"""Two-sample chi-square statistic."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from drift.comparison import Null, chi_square_quantile
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison


class ChiSquare(Statistic):
    """Pearson's chi-square of homogeneity between the window and the reference.

    Formula: sum_b (sqrt(m/n) c_b - sqrt(n/m) r_b)^2 / (c_b + r_b) over coarse bins,
    with c of n values in the window and r of m in the reference.

    Null: phi times a chi-square variable with (bins - 1) degrees of freedom.

    Reference: Pearson (1911), "On the probability that two independent distributions
    of frequency are really samples from the same population".

    Example:
        >>> from drift.statistics.example import compare
        >>> [round(float(value), 1) for value in ChiSquare().distance(compare())]
        [15.1, 627.7, 6.6]

    When not to use it: as a size of change; it grows with the number of rows.
    """

    kind: Literal["chi_square"] = "chi_square"
    ordered: ClassVar[bool] = False
    classic: ClassVar[float | None] = None

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The statistic, (features,)."""
        c, r = comparison.bins, comparison.baseline.bins
        n, m = (
            np.maximum(size, 1.0)[:, None]
            for size in (comparison.size, comparison.baseline.size)
        )
        both = np.where(c + r > 0, c + r, 1.0)
        terms = (np.sqrt(m / n) * c - np.sqrt(n / m) * r) ** 2 / both
        return comparison.guarded(terms.sum(axis=1))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, a chi-square law."""
        freedom = comparison.baseline.freedom
        phi = comparison.spread / comparison.harmonic
        return Null(freedom * phi, chi_square_quantile(freedom) * phi)
