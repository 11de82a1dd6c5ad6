"""LoadGen's early stopping: how many queries prove a percentile.

Of h + t independent queries with t over the limit, the percentile p is shown with
confidence c where P(at most t misses | miss probability 1 - p) < 1 - c, that is
I_p(h, t + 1) < 1 - c with the regularised incomplete beta function. It takes queries
for independent, which those of a busy server are not: near saturation it claims too
much. `loadtests.capacity` does not use it; reports show it and say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.99


def least_passing(misses: int, percentile: float) -> int:
    """The fewest queries in time that, beside so many misses, show the percentile."""
    low, high = 0, 1
    while not _shown(high, misses, percentile):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _shown(middle, misses, percentile):
            high = middle
        else:
            low = middle
    return high


def least_queries(misses: int, percentile: float) -> int:
    """All queries a run with so many misses needs."""
    return least_passing(misses, percentile) + misses


def _shown(in_time: int, misses: int, percentile: float) -> bool:
    odds = special.betainc(in_time, misses + 1, percentile)
    return bool(odds < 1.0 - CONFIDENCE)


def most_misses(queries: int, percentile: float) -> int | None:
    """The most misses that so many queries allow; None where not even none do."""
    if queries < least_queries(0, percentile):
        return None
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        if least_queries(middle, percentile) <= queries:
            low = middle
        else:
            high = middle
    return low


def holds(latencies: NDArray[np.float64], limit: float, percentile: float) -> bool:
    """The Server scenario: whether enough queries were in time.

    `latencies` (N,) seconds; those above `limit` are misses.
    """
    misses = int(np.count_nonzero(latencies > limit))
    return latencies.size >= least_queries(misses, percentile)


def estimate(latencies: NDArray[np.float64], percentile: float) -> float | None:
    """SingleStream and MultiStream: a latency that is above the percentile.

    With 99 % confidence, for independent queries. The t-th largest of `latencies` (N,)
    for the largest t >= 1 for which N queries are enough for t misses; None with fewer
    than one miss needs.
    """
    count = latencies.size
    t = most_misses(count, percentile)
    if not t:
        return None
    return float(np.partition(latencies, count - t)[count - t])
