"""Turns readings of one device into energy, despite resets, wraps, gaps and faults.

Energy is whole microjoules, so that what is divided adds up exactly. The counter comes
first. Between two readings of a counter that started over in between, and where there is
no counter, power is integrated: an average over the second before covers an interval of
a second whole, what is known at its ends only by the trapezoid rule. What neither tells
is a gap: time whose energy is unknown and not guessed. If the counter turns out to have
gone on through a gap, its rise is kept apart (`pop_late`), since nobody knows when it
was spent.

A counter that started over and is beyond its old value again by the next reading cannot
be told from one that rose: that takes two resets within seconds of each other.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from exporter.features.energy.sources.power_source import (
        Fault,
        Reading,
        ReadingKind,
    )

MICRO: Final = 1_000_000
_MOST_POINTS: Final = 16_384
# A reading above twice the limit is no reading; a board without a limit is below this.
_PLAUSIBLE: Final = 2.0
_MOST_WATTS: Final = 2000.0
_FROZEN_UPDATES: Final = 1.5
# The driver's average is over a second, Ampere and later (GA100 excepted).
_AVERAGED_SECONDS: Final = 1.25


@dataclass(frozen=True, slots=True)
class _Point:
    at: float
    total: int
    """Microjoules counted until then."""
    known: bool
    """True if the time since the previous point is accounted for."""


class Meter:
    """Cumulative energy of one device over time."""

    def __init__(self) -> None:
        self.faults: frozenset[Fault] = frozenset()
        self.resets = 0
        self.gap_seconds = 0.0
        self.kind: ReadingKind = "none"
        self.power_watts: float | None = None
        """The latest power that can be believed."""
        self._points: deque[_Point] = deque(maxlen=_MOST_POINTS)
        self._before: Reading | None = None
        self._counter: int | None = None
        self._counter_at = 0.0
        self._away = False
        """True if the time since the counter last rose was declared a gap."""
        self._settled = 0
        self._settled_at = -math.inf
        self._late = 0

    @property
    def mean_watts(self) -> float | None:
        """Mean power between the latest two readings, by the energy counted."""
        if self.faults or len(self._points) < 2:  # noqa: PLR2004 - two ends
            return None
        before, after = self._points[-2], self._points[-1]
        rise = after.total - before.total
        return rise / MICRO / (after.at - before.at) if after.known and rise else None

    @property
    def read_until(self) -> float | None:
        """The instant of the latest reading, None before the first."""
        return self._points[-1].at if self._points else None

    def add(self, reading: Reading) -> None:
        """Add the next reading; one that is not later than the last is ignored."""
        before = self._before
        if before is not None and reading.at <= before.at:
            return
        power = _believed(reading.power_watts, reading)
        faults = set(reading.faults)
        if reading.power_watts is not None and power is None:
            faults.add("no_power" if not reading.power_watts else "implausible")
        if before is None:
            self._points.append(_Point(reading.at, 0, known=True))
            self._note_counter(reading)
        else:
            energy = None
            if reading.faults:
                self._away = True
            else:
                energy = self._energy(before, reading, faults)
            elapsed = reading.at - before.at
            if energy is None:
                self.gap_seconds += elapsed
            total = self._points[-1].total + (energy or 0)
            self._points.append(_Point(reading.at, total, known=energy is not None))
        self.power_watts = None if reading.faults else power
        self.faults = frozenset(faults)
        self._before = reading

    @property
    def settled_until(self) -> float:
        """Time up to which energy was read; minus infinity before the first time."""
        return self._settled_at

    def settle(self, until: float, *, keep_from: float = math.inf) -> tuple[int, bool]:
        """Return the microjoules since the last call, and whether all of that time is covered.

        Counted up to `until`, which lies at or before `read_until`; a point between two
        readings gets its share of the time between them. Readings after `keep_from` are
        kept for `between`.
        """
        total = self._at(until)
        taken = total - self._settled
        known = self._is_known(self._settled_at, until)
        self._settled, self._settled_at = total, until
        keep = min(until, keep_from)
        while len(self._points) > 2 and self._points[1].at <= keep:  # noqa: PLR2004
            self._points.popleft()
        return taken, known

    def between(self, start: float, end: float) -> int | None:
        """Microjoules between two instants; None where not all of that time is known."""
        if start < self._points[0].at or end > self._points[-1].at:
            return None
        if not self._is_known(start, end):
            return None
        return self._at(end) - self._at(start)

    def smear(self, instant: float) -> float:
        """Seconds of energy on the wrong side of an instant between two readings.

        Each side gets its share of what was counted between them, whenever it was spent.
        """
        for before, after in pairwise(self._points):
            if before.at <= instant <= after.at:
                parts = (instant - before.at) * (after.at - instant)
                return parts / (after.at - before.at)
        return 0.0

    def _is_known(self, start: float, end: float) -> bool:
        return all(
            after.known
            for before, after in pairwise(self._points)
            if before.at < end and after.at > start
        )

    def pop_late(self) -> int:
        """Microjoules the counter rose while it could not be read, since the last call."""
        late, self._late = self._late, 0
        return late

    def _at(self, instant: float) -> int:
        points = self._points
        for before, after in pairwise(points):
            if after.at >= instant:
                share = (instant - before.at) / (after.at - before.at)
                return before.total + int((after.total - before.total) * share)
        return points[-1].total if points else 0

    def _energy(
        self, before: Reading, reading: Reading, faults: set[Fault]
    ) -> int | None:
        """Return microjoules between two readings, None if unknown; record faults."""
        integrated, now = _integrated(before, reading), reading.counter_microjoules
        if now is None:
            # A counter that comes back has risen meanwhile; what power said counts.
            self._counter = None
            averaged = reading.average_watts is not None
            self.kind = "integrated_average" if averaged else "integrated_instant"
            return integrated
        self.kind = "counter"
        if self._counter is None:
            self._note_counter(reading)
            return integrated
        return self._counted(reading, now - self._counter, integrated, faults)

    def _counted(
        self, reading: Reading, rise: int, integrated: int | None, faults: set[Fault]
    ) -> int | None:
        elapsed = reading.at - self._counter_at
        most = _most_watts(reading) * elapsed * MICRO
        if rise < 0:
            return self._fallen(reading, rise, most, integrated, faults)
        if rise == 0:
            if elapsed < _FROZEN_UPDATES * reading.device.update_seconds:
                return 0
            faults.add("frozen")
            self._away = True
            return None
        gap = self._away
        self._note_counter(reading)
        if rise > most:
            faults.add("implausible")
            return None
        if gap:
            self._late += rise
            return None
        return rise

    def _fallen(
        self,
        reading: Reading,
        rise: int,
        most: float,
        integrated: int | None,
        faults: set[Fault],
    ) -> int | None:
        gap = self._away
        value = reading.counter_microjoules or 0
        self._note_counter(reading)
        wrapped = rise + (reading.wraps_at_microjoules or 0)
        if reading.wraps_at_microjoules and 0 <= wrapped <= most:
            if gap:
                self._late += wrapped
                return None
            return wrapped
        if value > min(most, (value - rise) / 2):
            # A reset starts near 0; this one only went back.
            faults.add("backwards")
            return integrated
        self.resets += 1
        if integrated is not None and not gap:
            return integrated
        # The count since its restart is a lower bound.
        self._late += value
        return None

    def _note_counter(self, reading: Reading) -> None:
        if not reading.faults:
            self._counter = reading.counter_microjoules
            self._counter_at = reading.at
            self._away = False


def _most_watts(reading: Reading) -> float:
    limit = reading.device.max_watts
    return _PLAUSIBLE * limit if limit else _MOST_WATTS


def _believed(power: float | None, reading: Reading) -> float | None:
    if power is None or not math.isfinite(power):
        return None
    return power if 0 < power <= _most_watts(reading) else None


def _integrated(before: Reading, reading: Reading) -> int | None:
    """Microjoules between two readings by their powers, None if those are unknown."""
    if before.faults or reading.faults:
        return None
    seconds = reading.at - before.at
    average = _believed(reading.average_watts, reading)
    if average is not None and seconds <= _AVERAGED_SECONDS:
        return round(average * seconds * MICRO)
    for first, last in (
        (before.power_watts, reading.power_watts),
        (before.average_watts, reading.average_watts),
    ):
        start, end = _believed(first, before), _believed(last, reading)
        if start is not None and end is not None:
            return round((start + end) / 2 * seconds * MICRO)
    return None
