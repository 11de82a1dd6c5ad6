"""Grades of sliding windows of time: good, bad or unknown.

A window slides over the requests without steps: the same requests lie in all windows
that begin between two neighbouring instants at which a request enters or leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.histograms.quantiles import quantile_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from loadtests.result import Floats

    Mask = NDArray[np.bool_]

GOOD: Final = 1
UNKNOWN: Final = 0
BAD: Final = -1
_LEAST_SECONDS: Final = 1e-6
"""Pieces narrower than that are rounding errors of times that are the same."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Windows of one grade, one after the other: they begin from start to end."""

    grade: int
    start_seconds: float
    end_seconds: float
    first_due: int
    """Index of the first request of the first window; the next one where it is empty."""
    failed: bool
    """True if a request of one of the windows failed; bad ones may just be late."""

    @property
    def seconds(self) -> float:
        """Seconds in which windows of this grade began."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class Judged:
    """Requests in the order they were due, and their grades."""

    due: Floats
    failed: Mask
    late: Mask
    """Answered correctly, beyond the limit."""
    unknown: Mask
    """Requests that were never sent."""


def stretches(
    judged: Judged,
    start_seconds: float,
    end_seconds: float,
    *,
    window_seconds: float,
    quantile: float,
) -> list[Stretch]:
    """Return all windows from start to end, as stretches of one grade in order.

    A window is bad where a request of it failed or too many are late for the quantile;
    unknown where it is empty or one was never sent; good otherwise.
    """
    last = end_seconds - window_seconds
    if last <= start_seconds:
        return []
    due = judged.due
    edges = np.concatenate(([start_seconds, last], due, due - window_seconds))
    edges = np.unique(edges[(edges >= start_seconds) & (edges <= last)])
    wide = np.diff(edges) > _LEAST_SECONDS
    lows, highs = edges[:-1][wide], edges[1:][wide]
    middles = (lows + highs) / 2
    first = np.searchsorted(due, middles)
    end = np.searchsorted(due, middles + window_seconds)
    failed = _within(judged.failed, first, end) > 0
    grades = _grades(judged, failed, first, end, quantile)
    return list(_joined(grades, failed, lows, highs, first))


def _grades(
    judged: Judged,
    failed: Mask,
    first: NDArray[np.intp],
    end: NDArray[np.intp],
    quantile: float,
) -> NDArray[np.int8]:
    count = end - first
    most = int(count.max(initial=0))
    spare = np.array([0, *(n - quantile_rank(n, quantile) for n in range(1, most + 1))])
    late, unknown = (
        _within(mask, first, end) for mask in (judged.late, judged.unknown)
    )
    grades = np.full(count.shape, GOOD, np.int8)
    grades[(count == 0) | (unknown > 0)] = UNKNOWN
    grades[failed | (late > spare[count])] = BAD
    return grades


def _within(
    mask: Mask, first: NDArray[np.intp], end: NDArray[np.intp]
) -> NDArray[np.int64]:
    running = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
    return running[end] - running[first]


def _joined(
    grades: NDArray[np.int8],
    failed: Mask,
    lows: Floats,
    highs: Floats,
    first: NDArray[np.intp],
) -> Iterator[Stretch]:
    changes = np.flatnonzero(np.diff(grades)) + 1
    edges = [0, *changes.tolist(), grades.size]
    for a, b in pairwise(edges):
        if a < b:
            yield Stretch(
                grade=int(grades[a]),
                start_seconds=float(lows[a]),
                end_seconds=float(highs[b - 1]),
                first_due=int(first[a]),
                failed=bool(failed[a:b].any()),
            )
