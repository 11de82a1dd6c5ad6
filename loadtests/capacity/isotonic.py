"""A share that cannot fall as the rate grows, from noisy shares at a few rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def pooled(values: Floats, weights: Floats) -> Floats:
    """The never-falling values (N,) nearest to `values` in weighted squares.

    Pool adjacent violators (Ayer et al. 1955): neighbours that fall are replaced by
    their weighted mean until none do.
    """
    means: list[float] = []
    heavy: list[float] = []
    sizes: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        means.append(value)
        heavy.append(weight)
        sizes.append(1)
        while len(means) > 1 and means[-2] >= means[-1]:
            mean, mass, size = means.pop(), heavy.pop(), sizes.pop()
            whole = heavy[-1] + mass
            means[-1] = (means[-1] * heavy[-1] + mean * mass) / whole
            heavy[-1] = whole
            sizes[-1] += size
    return np.repeat(means, sizes)


def crossing(rates: Floats, shares: Floats, floor: Floats, allowed: float) -> float:
    """The rate at which the never-falling `shares` (N,) reach `allowed`.

    Between rates the logarithm of the share is linear: tails of queues are exponential
    in the load. `floor` (N,) stands for shares of 0, which have none. Infinite where
    all are below, and 0 where all are above.
    """
    heights = np.log(np.maximum(shares, floor))
    heights = np.maximum.accumulate(heights)
    target = np.log(allowed)
    above = np.flatnonzero(heights > target)
    if not above.size:
        return np.inf
    first = int(above[0])
    if first == 0:
        return 0.0
    low, high = heights[first - 1], heights[first]
    part = (target - low) / (high - low)
    return float(rates[first - 1] * (rates[first] / rates[first - 1]) ** part)
