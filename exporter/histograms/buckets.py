"""The bucket layout of the latency histogram: schema 5, bounds exact to the last bit.

Every bucket is 2^(1/32) = 1.0219 times as wide as the one before it:

    Prometheus index i covers (2^((i-1)/32), 2^(i/32)]     1.0 is in bucket 0
    OpenTelemetry index i covers (2^(i/32), 2^((i+1)/32)]  the same bucket is -1

The span is bounded: up to ZERO_THRESHOLD a value belongs to the zero bucket, as both
formats define it; above HIGHEST_BOUND it belongs to the last bucket. Inside the
package a bucket is named by its "slot", the Prometheus index counted from the zero
bucket's, which is slot 0.

References:
    Prometheus, Native Histograms, "Schema"; client_golang's `Histogram.observe`.
    OpenTelemetry, Metrics Data Model, "ExponentialHistogram".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from math import frexp
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA: Final = 5
BUCKETS_PER_OCTAVE: Final = 32
GROWTH: Final = 2.0 ** (1 / BUCKETS_PER_OCTAVE)
ZERO_THRESHOLD: Final = 2.0**-30  # seconds: 0.93 ns
HIGHEST_BOUND: Final = 2.0**20  # seconds: 12 days
RELATIVE_ERROR: Final = (GROWTH - 1.0) / (GROWTH + 1.0)

FIRST_INDEX: Final = -30 * BUCKETS_PER_OCTAVE  # its upper bound is the zero threshold
LAST_INDEX: Final = 20 * BUCKETS_PER_OCTAVE
LAST_SLOT: Final = LAST_INDEX - FIRST_INDEX
_EXPONENT_ZERO_SLOT: Final = -BUCKETS_PER_OCTAVE - FIRST_INDEX
_CHUNK: Final = 1 << 15  # values at a time: the scratch arrays stay in the cache
_SPARE: Final = 16  # empty slots held on either side of one that was not there


def _fraction(step: int) -> float:
    """Return 2^(step / 32 - 1), rounded once: from integers, whatever the platform's pow."""
    root = 1 << (step + 100 * BUCKETS_PER_OCTAVE)
    for _ in range(SCHEMA):
        root = math.isqrt(root)
    return root / (1 << 101)


# Upper bounds as frexp sees them, in [0.5, 1).
FRACTIONS: Final = tuple(_fraction(step) for step in range(BUCKETS_PER_OCTAVE))


def upper_bound(prometheus_index: int) -> float:
    """The inclusive upper bound of a bucket in seconds, 2^(index / 32)."""
    octave, step = divmod(prometheus_index, BUCKETS_PER_OCTAVE)
    return math.ldexp(FRACTIONS[step], octave + 1)


def prometheus_index(value_seconds: float) -> int:
    """The Prometheus index of the bucket that holds a positive, finite value."""
    fraction, exponent = frexp(value_seconds)
    return bisect_left(FRACTIONS, fraction) + (exponent - 1) * BUCKETS_PER_OCTAVE


def slot_of(value_seconds: float) -> int:
    """The slot that holds a value >= 0, inside the span."""
    if value_seconds <= ZERO_THRESHOLD:
        return 0
    fraction, exponent = frexp(value_seconds)  # prometheus_index, without the call
    slot = (
        bisect_left(FRACTIONS, fraction)
        + exponent * BUCKETS_PER_OCTAVE
        + _EXPONENT_ZERO_SLOT
    )
    return min(slot, LAST_SLOT)


# By slot; UPPER[slot - 1] is its exclusive lower bound, MIDDLE[slot - 1] its geometric
# midpoint.
UPPER: Final = np.array([upper_bound(i) for i in range(FIRST_INDEX, LAST_INDEX + 1)])
MIDDLE: Final = np.sqrt(UPPER[1:] * UPPER[:-1])

# Positive floats order as their bits do. The exponent and the first six bits of the
# fraction name a cell at most 1/64 octave wide, so one bucket bound at most is in it.
_CELL_SHIFT: Final = 46
_LOW_BITS: Final = int(UPPER[0].view(np.int64))
_HIGH_BITS: Final = int(UPPER[-1].view(np.int64))
_FIRST_CELL: Final = _LOW_BITS >> _CELL_SHIFT
_CELLS: Final = np.arange(_FIRST_CELL, (_HIGH_BITS >> _CELL_SHIFT) + 1) << _CELL_SHIFT
_CELL_SLOT: Final = np.searchsorted(UPPER, _CELLS.view(np.float64))
_CELL_BOUND: Final = UPPER[_CELL_SLOT].view(np.int64)


def tally(values: NDArray[np.float64], first: int, last: int) -> NDArray[np.int64]:
    """Return how many values lie in each slot of [first, last], which holds them all.

    `values` is one-dimensional and contiguous, every element >= 0 and finite.
    """
    counts = np.zeros(last - first + 1, np.int64)
    every_bit = values.view(np.int64)
    for start in range(0, values.size, _CHUNK):
        bits = np.clip(every_bit[start : start + _CHUNK], _LOW_BITS, _HIGH_BITS)
        cells = (bits >> _CELL_SHIFT) - _FIRST_CELL
        slots = _CELL_SLOT[cells]
        slots += bits > _CELL_BOUND[cells]
        slots -= first
        counts += np.bincount(slots, minlength=counts.size)
    return counts


class Buckets(NamedTuple):
    """Contiguous bucket counts; the first is the bucket of `prometheus_offset`."""

    prometheus_offset: int
    counts: NDArray[np.int64]

    @property
    def otel_offset(self) -> int:
        """The first bucket's OpenTelemetry index: one less, for the same bounds."""
        return self.prometheus_offset - 1


class SparseCounts:
    """Counts by slot, 1 to LAST_SLOT, held only around those that are not empty."""

    __slots__ = ("_cells", "base", "held")

    def __init__(self) -> None:
        self._hold(np.zeros(0, np.int64), 1)

    def _hold(self, held: NDArray[np.int64], base: int) -> None:
        self.held = held
        self.base = base  # the slot of the first element
        self._cells = held.data  # single elements change twice as fast through it

    def increment(self, slot: int, count: int) -> None:
        """Add to one slot."""
        place = slot - self.base
        if not 0 <= place < len(self._cells):
            self._cover(slot - _SPARE, slot + _SPARE)
            place = slot - self.base
        self._cells[place] += count

    def add(self, first: int, counts: NDArray[np.int64]) -> None:
        """Add to the slots from `first` on."""
        if counts.size:
            self._cover(first, first + counts.size - 1)
            start = first - self.base
            self.held[start : start + counts.size] += counts

    def populated(self) -> tuple[int, NDArray[np.int64]]:
        """The first slot that is not empty, and a view from it to the last such."""
        places = np.flatnonzero(self.held)
        if not places.size:
            return 1, self.held[:0]
        first, last = int(places[0]), int(places[-1])
        return self.base + first, self.held[first : last + 1]

    def sum_limits(self) -> tuple[float, float]:
        """The least and the greatest sum in seconds that the counted values can have."""
        slot, counts = self.populated()
        low = float(np.dot(counts, UPPER[slot - 1 : slot - 1 + counts.size]))
        overflown = counts.size and slot + counts.size - 1 == LAST_SLOT
        return low, math.inf if overflown else low * GROWTH

    def copy(self) -> SparseCounts:
        """The same counts, independent of these."""
        twin = SparseCounts()
        twin._hold(self.held.copy(), self.base)
        return twin

    def minus(self, other: SparseCounts) -> SparseCounts | None:
        """Return the rest without the other's counts; None if it has more in any slot."""
        first, counts = self.populated()
        other_first, others = other.populated()
        left = counts.copy()
        if others.size:
            start = other_first - first
            if start < 0 or start + others.size > left.size:
                return None
            left[start : start + others.size] -= others
            if int(left.min()) < 0:
                return None
        difference = SparseCounts()
        difference.add(first, left)
        return difference

    def _cover(self, first: int, last: int) -> None:
        """Hold these slots too, as far as they exist."""
        size = self.held.size
        if size:
            first, last = min(first, self.base), max(last, self.base + size - 1)
        first, last = max(first, 1), min(last, LAST_SLOT)
        if last - first < size:
            return
        grown = np.zeros(last - first + 1, np.int64)
        start = self.base - first if size else 0
        grown[start : start + size] = self.held
        self._hold(grown, first)
