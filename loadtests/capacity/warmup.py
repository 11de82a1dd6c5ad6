"""Finds where a run has settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH: Final = 5
LEAST: Final = 10
"""Fewer batches than this tell nothing."""


def settled(values: NDArray[np.float64], batch: int = BATCH) -> int | None:
    """Return how many of the first values (N,) to leave out, by MSER-5.

    White (1997): of batch means y_1 … y_n leave out the d that minimise
    sum_(i > d) (y_i - mean)^2 / (n - d)^2. Where the minimum lies in the second half
    the series has not settled, and None is returned; 0 for series too short to judge.
    """
    count = values.size // batch
    if count < LEAST:
        return 0
    means = values[: count * batch].reshape(count, batch).mean(axis=1)
    left = np.arange(count, 0, -1)
    tail = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means * means)[::-1])[::-1]
    spread = np.maximum(squares - tail * tail / left, 0.0) / (left * left)
    cut = int(np.argmin(spread[: count - LEAST // 2]))
    return cut * batch if cut <= count // 2 else None
