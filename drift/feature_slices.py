"""Slices of features, which bound the memory of computations on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Few enough for the processor's cache, enough for a pass to outweigh its beginning.
TOGETHER: Final = 64


def feature_slices(features: int, together: int | None = None) -> Iterator[slice]:
    """Slices of at most `together` that cover 0..features-1; one, even of nothing.

    Example:
        >>> [(part.start, part.stop) for part in feature_slices(100)]
        [(0, 64), (64, 100)]
    """
    step = together or TOGETHER
    for first in range(0, max(features, 1), step):
        yield slice(first, min(first + step, features))
