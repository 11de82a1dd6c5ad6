"""The latencies of a sliding window, by slots of time."""

from __future__ import annotations

import math
from math import inf
from typing import TYPE_CHECKING

from exporter.histograms.histogram import Histogram

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class WindowedHistogram:
    """The observations of the last `window_seconds`, in a ring of histograms.

    Time is cut into slots of window / slots seconds; the window is the slot that holds
    `now` and the slots - 1 before it, so it spans between 1 - 1 / slots and 1 of its
    length. `now` is monotonic seconds at recording. Should it step back, the slots that
    are still in the ring take what belongs to them; a step of more than a window is a
    clock that was set anew, and empties the ring.
    """

    __slots__ = ("_newest", "_ring", "_slot_seconds", "_slots")

    def __init__(self, window_seconds: float, slots: int) -> None:
        if not 0.0 < window_seconds < inf or slots < 1:
            raise ValueError(
                f"window_seconds is {window_seconds!r} and slots {slots!r}; "
                "expected a finite length above 0, and at least 1 slot"
            )
        self._slot_seconds = window_seconds / slots
        self._slots = slots
        self._newest: int | None = None
        self._ring: dict[int, Histogram] = {}

    def record(self, value_seconds: float, now: float) -> None:
        """Count one value at `now`. Raises ValueError as `Histogram.record` does."""
        self._at(now).record(value_seconds)

    def record_many(self, values: ArrayLike, now: float) -> None:
        """Count an array at `now`. Raises ValueError as `Histogram.record_many` does."""
        self._at(now).record_many(values)

    def snapshot(self, now: float) -> Histogram:
        """Return the observations of the window that ends at `now`, in a new histogram."""
        self._advance(now)
        whole = Histogram()
        for histogram in self._ring.values():
            whole.merge(histogram)
        return whole

    def slots(self, now: float) -> list[Histogram]:
        """The histograms of the window that ends at `now`, in order of time; no copies.

        Slots without observations are left out.
        """
        self._advance(now)
        return [self._ring[slot] for slot in sorted(self._ring)]

    def _at(self, now: float) -> Histogram:
        slot = self._advance(now)
        histogram = self._ring.get(slot)
        if histogram is None:
            histogram = self._ring[slot] = Histogram()
        return histogram

    def _advance(self, now: float) -> int:
        """Drop slots that have left the window; return the slot of `now`."""
        if not -inf < now < inf:
            raise ValueError(f"now is {now!r}; expected finite monotonic seconds")
        slot = math.floor(now / self._slot_seconds)
        if self._newest is None or slot > self._newest:
            self._newest = slot
            for old in [s for s in self._ring if s <= slot - self._slots]:
                del self._ring[old]
        elif slot <= self._newest - self._slots:
            self._newest = slot
            self._ring.clear()
        return slot
