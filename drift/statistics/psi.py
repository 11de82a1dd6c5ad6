"""Population stability index."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from drift.comparison import Null, chi_square_quantile
from drift.statistics.base import Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison


class Psi(Statistic):
    """Population stability index: the symmetrised Kullback-Leibler divergence.

    Formula: sum_b (q_b - p_b) ln(q_b / p_b) over coarse bins of about equal reference
    share p, window share q, half a row added to every bin.

    Null: h times a chi-square variable with (bins - 1) degrees of freedom.

    Reference: Siddiqi (2006), Credit Risk Scorecards; the null after Yurdakul (2018).

    Example:
        >>> from drift.statistics.example import compare
        >>> [round(float(value), 3) for value in Psi().distance(compare())]
        [0.022, 1.085, 0.01]

    When not to use it: with few rows against a fixed threshold (100 rows in 16 bins
    have 0.15 without any change), or where the order of the bins matters.
    """

    kind: ClassVar[str] = "psi"
    title: ClassVar[str] = "PSI"
    ordered: ClassVar[bool] = False
    classic: ClassVar[float | None] = 0.2

    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """PSI in nats, (features,)."""
        p, q = comparison.shares
        ratio = np.log(np.where(q > 0, q, 1.0) / np.where(p > 0, p, 1.0))
        return comparison.over_bins(((q - p) * ratio).sum(axis=1))

    def null(self, comparison: Comparison) -> Null:
        """Return its null distribution, from the chi-square law."""
        freedom = comparison.baseline.freedom
        spread = comparison.spread
        return Null(freedom * spread, chi_square_quantile(freedom) * spread)
