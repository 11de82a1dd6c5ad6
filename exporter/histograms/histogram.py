"""The one latency histogram: sparse, base-2 exponential, mergeable, numpy only.

Schema 5 of Prometheus native histograms, which is scale 5 of OpenTelemetry's; the
layout and both index conventions are in `exporter.histograms.buckets`. Memory is bounded: at most
1,600 buckets of 8 bytes, about 1 kB for two octaves of latencies. From 1 ns to 12 days
a quantile is at most 1.09 % away from the exact one; below, at most 1 ns.

Not thread-safe: one writer, and readers get a `copy()` or a `since()` made by it.
"""

from __future__ import annotations

import functools
import math
import sys
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.histograms.buckets import (
    FIRST_INDEX,
    MIDDLE,
    SCHEMA,
    ZERO_THRESHOLD,
    Buckets,
    SparseCounts,
    slot_of,
    tally,
)
from exporter.histograms.histogram_state import (
    MAX_COUNT,
    STATE_VERSION,
    HistogramState,
)
from exporter.histograms.quantiles import RankedBuckets, interval_ranks, quantile_rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

_SUM_TOLERANCE: Final = 1e-9  # relative: additions in another order


class Histogram:
    """Latencies in seconds, counted in exponential buckets.

    Recording, merging and the difference of two snapshots are exact: every count equals
    that of one pass over all the values. Only `sum` is floating point: its last digits
    depend on the order of additions, and it saturates at the largest float. Equality
    compares counts and extremes exactly, and sums to one part in 1e9.
    """

    __slots__ = ("_count", "_counts", "_max", "_min", "_sum", "_zero")
    __hash__ = None  # type: ignore[assignment]  # mutable

    def __init__(self) -> None:
        self._count = 0
        self._zero = 0
        self._sum = 0.0
        self._min = inf
        self._max = -inf
        self._counts = SparseCounts()

    @property
    def count(self) -> int:
        """Number of observations."""
        return self._count

    @property
    def zero_count(self) -> int:
        """Observations in the zero bucket: 0 to ZERO_THRESHOLD."""
        return self._zero

    @property
    def sum(self) -> float:
        """Sum of all observations in seconds."""
        return min(self._sum, sys.float_info.max)

    @property
    def min(self) -> float | None:
        """The smallest observation, exact; None when empty or unknown (see `since`)."""
        return self._min if math.isfinite(self._min) else None

    @property
    def max(self) -> float | None:
        """The largest observation, exact; None when empty or unknown (see `since`)."""
        return self._max if math.isfinite(self._max) else None

    def record(self, value_seconds: float, count: int = 1) -> None:
        """Count one value, or `count` observations of it.

        Raises:
            ValueError: if the value is negative, NaN or infinite, or the count is not
                1 to 2^53 in all; nothing is recorded then.
        """
        value = float(value_seconds) + 0.0  # -0.0 becomes 0.0
        if not 0.0 <= value < inf:
            raise _value_error(value)
        if count != 1:
            self._check_room(count)
        if value > ZERO_THRESHOLD:
            self._counts.increment(slot_of(value), count)
        else:
            self._zero += count
        self._count += count
        self._sum += value * count
        if not self._min <= value <= self._max:
            self._min = min(self._min, value)
            self._max = max(self._max, value)

    def record_many(self, values: ArrayLike) -> None:
        """Count every element of an array of any shape.

        Raises:
            ValueError: if any value is negative, NaN or infinite; nothing of the batch
                is recorded then.
        """
        flat = np.ascontiguousarray(values, np.float64).reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()) + 0.0, float(flat.max()) + 0.0
        if not (low >= 0.0 and high < inf):
            raise _value_error(float(flat[~((flat >= 0.0) & (flat < inf))][0]))
        self._check_room(flat.size)
        with np.errstate(over="ignore"):
            total = float(flat.sum())
        first = slot_of(low)
        counts = tally(flat, first, slot_of(high))
        if first == 0:
            self._zero += int(counts[0])
            first, counts = 1, counts[1:]
        self._counts.add(first, counts)
        self._note(flat.size, total, low, high)

    def merge(self, other: Histogram) -> None:
        """Add the observations of another histogram, which stays as it is.

        Raises:
            ValueError: if the count would pass 2^53.
        """
        if not other._count:
            return
        self._check_room(other._count)
        self._counts.add(other._counts.base, other._counts.held)
        self._zero += other._zero
        self._note(other._count, other._sum, other._min, other._max)

    def __add__(self, other: Histogram) -> Histogram:
        merged = self.copy()
        merged.merge(other)
        return merged

    def copy(self) -> Histogram:
        """An independent histogram with the same observations."""
        twin = Histogram()
        twin._count, twin._zero, twin._sum = self._count, self._zero, self._sum
        twin._min, twin._max = self._min, self._max
        twin._counts = self._counts.copy()
        return twin

    def since(self, previous: Histogram) -> Histogram:
        """Return the observations added since `previous`, an earlier snapshot of this one.

        Counts are exact. `min` and `max` are known where they are new since `previous`,
        and None otherwise.

        Raises:
            ValueError: if `previous` holds anything that this histogram does not.
        """
        counts = self._counts.minus(previous._counts)
        new = Histogram()
        new._zero = self._zero - previous._zero
        new._count = self._count - previous._count
        new._sum = self.sum - previous.sum
        if (
            counts is None
            or new._zero < 0
            or self._min > previous._min
            or self._max < previous._max
            or new._sum < -_SUM_TOLERANCE * self.sum
        ):
            raise _predecessor_error(self, previous)
        new._counts = counts
        if new._count:
            new._min = self._min if self._min < previous._min else -inf
            new._max = self._max if self._max > previous._max else inf
        low, high = counts.sum_limits()  # cancellation must not leave them
        new._sum = min(max(new._sum, low), high + new._zero * ZERO_THRESHOLD)
        return new

    def quantile(self, q: float) -> float | None:
        """The q-quantile in seconds, off by at most 1.09 %; None when empty.

        Of the inverse distribution function (`quantile_rank`), by the middle of its
        bucket (`RankedBuckets.middle`).

        Raises:
            ValueError: if q is not in [0, 1].
        """
        rank = quantile_rank(self._count or 1, q)
        return self._ranked().middle(rank) if self._count else None

    def quantile_interval(
        self, q: float, confidence: float = 0.95, effective: float | None = None
    ) -> tuple[float, float] | None:
        """A distribution-free confidence interval for the true q-quantile in seconds.

        Without `effective` the observations are taken as independent; else they tell as
        much as so many independent ones (`process_quantiles` measures how many).

        Between two order statistics (`interval_ranks`), read from the buckets so that
        it is never too narrow (`RankedBuckets.between`), and never without the estimate
        of `quantile`. Where it is wider than a bucket it covers the true quantile as
        often as `confidence` says; where the sample could tell more than a bucket, more
        often. None when there are too few observations for it (`supports`).

        Raises:
            ValueError: if q or the confidence is not inside (0, 1).
        """
        ranks = interval_ranks(self._count, q, confidence, effective)
        if ranks is None:
            return None
        ranked = self._ranked()
        estimate = ranked.middle(quantile_rank(self._count, q))
        low, high = ranked.between(*ranks)
        return min(low, estimate), max(high, estimate)

    def edges_about(self, q: float) -> tuple[int, int]:
        """Return the slots at and after which values above the q-quantile may begin."""
        slot = self._ranked().slot(quantile_rank(self._count or 1, q))
        return slot, slot + 1

    def above(self, slots: Sequence[int]) -> list[int]:
        """Observations in each slot of `slots` and all beyond it."""
        held, base = self._counts.held, self._counts.base
        return [
            int(held[max(slot - base, 0) :].sum()) + (self._zero if slot <= 0 else 0)
            for slot in slots
        ]

    def cumulative(self, bounds: Sequence[float]) -> tuple[int, ...]:
        """Observations at or below each bound: the counts of classic `le` buckets.

        A bucket counts as a whole, under every bound that is not below its geometric
        midpoint. Each count is therefore the exact count of some bound within 1.09 %
        (2^(1/64)) of the given one, up to a bound of 1e6 s; counts never fall as time
        or bounds grow. The bound +Inf holds every observation.

        Raises:
            ValueError: if a bound is NaN.
        """
        ends, below_zero = _ends(tuple(bounds))
        running = np.concatenate(([0], np.cumsum(self._counts.held)))
        whole = np.clip(ends - self._counts.base, 0, self._counts.held.size)
        under = running[whole] + self._zero
        under[below_zero] = 0
        return tuple(under.tolist())

    def buckets(self) -> Buckets:
        """The buckets from the first to the last that is not empty."""
        first, counts = self._counts.populated()
        return Buckets(first + FIRST_INDEX if counts.size else 0, counts.copy())

    def to_state(self) -> dict[str, Any]:
        """Return the state as JSON values, for `from_state`."""
        offset, counts = self.buckets()
        return {
            "version": STATE_VERSION,
            "schema": SCHEMA,
            "prometheus_offset": offset,
            "counts": counts.tolist(),
            "zero_count": self._zero,
            "sum": self.sum,
            "min": self.min,
            "max": self.max,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Histogram:
        """The histogram that `to_state` described.

        Raises:
            ValueError: if the state is of another version or contradicts itself.
        """
        checked = HistogramState.model_validate(state)
        histogram = cls()
        first = checked.prometheus_offset - FIRST_INDEX
        histogram._counts.add(first, np.array(checked.counts, np.int64))
        histogram._zero = checked.zero_count
        if checked.count:
            low = -inf if checked.min is None else checked.min
            high = inf if checked.max is None else checked.max
            histogram._note(checked.count, checked.sum, low, high)
        return histogram

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine, theirs = self.buckets(), other.buckets()
        return (
            (self._count, self._zero, self.min, self.max, mine.prometheus_offset)
            == (other._count, other._zero, other.min, other.max, theirs[0])
            and np.array_equal(mine.counts, theirs.counts)
            and math.isclose(self.sum, other.sum, rel_tol=_SUM_TOLERANCE)
        )

    def __repr__(self) -> str:
        return (
            f"Histogram(count={self.count}, sum={self.sum:.6g}, "
            f"min={self.min}, max={self.max})"
        )

    def _check_room(self, count: int) -> None:
        if not 1 <= count <= MAX_COUNT - self._count:
            raise ValueError(
                f"count is {count!r} with {self._count} recorded; "
                f"it is at least 1, and at most {MAX_COUNT} in all"
            )

    def _note(self, count: int, total: float, low: float, high: float) -> None:
        self._count += count
        self._sum += total
        self._min = min(self._min, low)
        self._max = max(self._max, high)

    def _ranked(self) -> RankedBuckets:
        return RankedBuckets(
            first_slot=self._counts.base,
            counts=self._counts.held,
            running=np.cumsum(self._counts.held) + self._zero,
            zero_count=self._zero,
            count=self._count,
            lowest=self._min,
            highest=self._max,
        )


@functools.lru_cache(maxsize=64)
def _ends(bounds: tuple[float, ...]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return one past the last slot that counts under each bound, and which bounds are < 0.

    Kept for each metric: `searchsorted` releases the interpreter's lock, and a page of
    thousands of histograms would wait as often for busy threads.
    """
    limits = np.asarray(bounds, np.float64)
    if np.isnan(limits).any():
        raise ValueError("a bucket bound is NaN; bounds are numbers of seconds")
    return np.searchsorted(MIDDLE, limits, side="right") + 1, limits < 0.0


def _value_error(value: float) -> ValueError:
    return ValueError(f"{value!r} was recorded; expected finite seconds, 0 or more")


def _predecessor_error(whole: Histogram, previous: Histogram) -> ValueError:
    return ValueError(
        f"{previous!r} is not an earlier snapshot of {whole!r}; expected a histogram "
        "whose observations are all in the later one"
    )
