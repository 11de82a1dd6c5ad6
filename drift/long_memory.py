"""How dependence grows beyond the blocks that can be measured.

With dependence that ends, the overdispersion phi of block sums levels off as blocks grow.
With long memory (weather, seasons, timetables) it goes on as a power of the rows,

    phi(n) ~ n^g,   g = 2 H - 1,   H the Hurst exponent,

and n rows are worth no more than n^(1 - g). The slope of log phi over log rows says which.

Reference: Beran (1994), "Statistics for Long-Memory Processes", section 4.4 (variance
plot); Leland, Taqqu, Willinger, Wilson (1994) for traffic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from drift.dispersion import bins_ratio, dyadic, variance_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from drift.projection import Projection, Summary

    Floats = NDArray[np.float64]

# Levels of few blocks are noisy, but the only ones that reach far; they weigh as many
# blocks as they have.
MIN_BLOCKS: Final = 8
SIGNIFICANT: Final = 2.0

_MIN_LEVELS: Final = 3
_MOST: Final = 1.0


def growth(
    blocks: Sequence[Summary], projection: Projection, phi: Floats
) -> NDArray[np.float64]:
    """The power g of every feature, (features,), between 0 and 1.

    The largest slope of location, scale and bins, weighted by blocks; 0 where it is
    within `SIGNIFICANT` standard errors of 0, or where `phi` (features,) found no
    dependence at all.
    """
    levels = list(dyadic(blocks, MIN_BLOCKS))
    features = projection.used.shape[0]
    if len(levels) < _MIN_LEVELS:
        return np.zeros(features)
    ratios = np.stack(
        [
            np.stack(
                (
                    variance_ratio(level.location, level.finite),
                    variance_ratio(level.scale, level.finite),
                    bins_ratio(level, projection.used),
                )
            )
            for level in levels
        ]
    )
    weights = np.array([level.rows.shape[0] for level in levels], np.float64)
    octaves = np.arange(len(levels), dtype=np.float64)
    octaves -= (weights * octaves).sum() / weights.sum()
    information = float((weights * octaves**2).sum())
    usable = (ratios > 0).all(axis=0)
    logs = np.log2(np.where(ratios > 0, ratios, 1.0))
    slopes = np.tensordot(weights * octaves, logs, axes=1) / information
    # log2 phi of k blocks has the variance 2 / k / ln(2)^2.
    error = np.sqrt(2.0 / information) / np.log(2.0)
    slopes = np.where(usable & (slopes > SIGNIFICANT * error), slopes, 0.0)
    return np.where(phi > 1.0, np.minimum(slopes.max(axis=0), _MOST), 0.0)
