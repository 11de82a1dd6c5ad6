"""The normal distribution without scipy, which the sidecar does not load."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SQRT2: Final = math.sqrt(2.0)
_DENSITY: Final = 1.0 / math.sqrt(2.0 * math.pi)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def density(x: Floats) -> Floats:
    """Density of N(0, 1)."""
    return np.asarray(_DENSITY * np.exp(-0.5 * np.square(x)), np.float64)


def below(x: Floats | float) -> Floats:
    """P(Z <= x)."""
    return np.asarray(0.5 * _erfc(-np.asarray(x, np.float64) / _SQRT2), np.float64)


def above(x: float) -> float:
    """P(Z > x), without the cancellation of 1 - P(Z <= x)."""
    return 0.5 * math.erfc(x / _SQRT2)


def quantile(probability: float) -> float:
    """The x with P(Z <= x) = probability."""
    return NormalDist().inv_cdf(probability)


def share_interval(
    share: float, samples: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Return Wilson's interval of a share of independent samples, more than 0.

    Example: of 9 in 10, 0.596 to 0.982 at 95 %.

    Reference: E. B. Wilson, Journal of the American Statistical Association 22 (1927)
    209-212.
    """
    z = quantile((1.0 + confidence) / 2.0)
    scale = 1.0 + z * z / samples
    middle = (share + 0.5 * z * z / samples) / scale
    half = (
        z
        / scale
        * math.sqrt(share * (1.0 - share) / samples + (0.5 * z / samples) ** 2)
    )
    return max(0.0, middle - half), min(1.0, middle + half)


def chi_square_above(value: float, freedom: int) -> float:
    """P(chi-square > value), by Wilson and Hilferty's cube root (1931).

    From 3 degrees of freedom on good to 0.0002 for tails of at most 1 %, and to 0.006 for
    others: enough to mark what looks wrong.
    """
    if value <= 0:
        return 1.0
    spread = 2.0 / (9.0 * freedom)
    return above(((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def chi_square_quantile(probability: float, freedom: float) -> float:
    """The x with P(chi-square <= x) = probability, by the same; at least 0."""
    spread = 2.0 / (9.0 * freedom)
    root = 1.0 - spread + quantile(probability) * math.sqrt(spread)
    return freedom * max(root, 0.0) ** 3
