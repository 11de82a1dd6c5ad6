"""Sums over parts of a reference's rows, for its dependence and its seasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import ABOVE
from drift.projection import BINS, EVENTS, Summary
from drift.season import HOURS, MIN_WEEKS, Season

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.projection import Projection, Scores

    Floats = NDArray[np.float64]
    Counted = NDArray[np.int64] | NDArray[np.uint32]

MAX_BLOCKS: Final = 256

# Of a block: finite values, coarse bins and events are whole numbers; two sums are not.
_WHOLE: Final = 1 + BINS + len(EVENTS)
_SCORES: Final = 2


class BlockSums:
    """The sums of up to `MAX_BLOCKS` stretches of rows, exact, in 128 bytes a feature."""

    def __init__(self, features: int) -> None:
        self.rows: list[int] = []
        self.hours: list[Counter[int | None]] = []
        self._whole = np.zeros((MAX_BLOCKS, features, _WHOLE), np.int32)
        self._scores = np.zeros((MAX_BLOCKS, features, _SCORES))

    def begin(self) -> None:
        """Begin a block."""
        place = len(self.rows)
        self._whole[place] = 0
        self._scores[place] = 0.0
        self.rows.append(0)
        self.hours.append(Counter())

    def add(self, summary: Summary, hour: int | None) -> None:
        """Add rows to the last block."""
        place = len(self.rows) - 1
        whole, scores = self._whole[place], self._scores[place]
        whole[:, 0] += summary.finite.astype(np.int32)
        whole[:, 1 : 1 + BINS] += summary.bins.astype(np.int32)
        whole[:, 1 + BINS :] += summary.events.astype(np.int32)
        scores[:, 0] += summary.location
        scores[:, 1] += summary.scale
        self.rows[place] += summary.rows
        self.hours[place][hour] += summary.rows

    def halve(self) -> None:
        """Merge the blocks in pairs."""
        pairs = range(len(self.rows) // 2)
        for to in pairs:
            for sums in (self._whole, self._scores):
                sums[to] = sums[2 * to] + sums[2 * to + 1]
        self.rows = [self.rows[2 * i] + self.rows[2 * i + 1] for i in pairs]
        self.hours = [self.hours[2 * i] + self.hours[2 * i + 1] for i in pairs]

    def of(self, block: int, part: slice) -> Summary:
        """Return the sums of one block for some features."""
        whole = self._whole[block, part].astype(np.float64)
        return Summary(
            self.rows[block],
            whole[:, 0],
            self._scores[block, part, 0],
            self._scores[block, part, 1],
            whole[:, 1 : 1 + BINS],
            whole[:, 1 + BINS :],
        )


class HourSums:
    """Sums by hour of the week, of which the seasons are the means."""

    def __init__(self, features: int) -> None:
        self._finite = np.zeros((HOURS, features))
        self._location = np.zeros((HOURS, features))
        self._scale = np.zeros((HOURS, features))
        self._bins = np.zeros((HOURS, features, BINS), np.uint32)
        self._visits = np.zeros(HOURS, np.int64)
        self._last: int | None = None

    def add(self, summary: Summary, hour: int | None) -> None:
        """Add rows of one hour; those without one are left out."""
        if hour is None:
            return
        self._visits[hour] += hour != self._last
        self._last = hour
        self._finite[hour] += summary.finite
        self._location[hour] += summary.location
        self._scale[hour] += summary.scale
        self._bins[hour] += summary.bins.astype(np.uint32)

    def weekdays(self) -> tuple[int, ...] | None:
        """The days with rows, 0 for Monday; None without times."""
        seen = np.flatnonzero(self._visits)
        return tuple(np.unique(seen // 24).tolist()) if seen.size else None

    def season(self, rescoring: Rescoring) -> Season | None:
        """The mean scores of each hour; None with less than `MIN_WEEKS` of any."""
        seen = self._visits > 0
        if not seen.any() or int(self._visits[seen].min()) < MIN_WEEKS:
            return None
        location, scale = rescoring.scores(
            self._finite, self._location, self._scale, self._bins
        )
        return Season(
            self._means(location), self._means(scale), self._finite.astype(np.float64)
        )

    def _means(self, sums: Floats) -> Floats:
        overall = sums.sum(axis=0) / np.maximum(self._finite.sum(axis=0), 1.0)
        means = sums / np.maximum(self._finite, 1.0)
        return np.where(self._finite > 0, means - overall, 0.0)


@dataclass(frozen=True, slots=True)
class Rescoring:
    """Turns sums of a sample's scores into those of the scores of all rows.

    A score of all rows is the sample's, standardised over all rows, and the mean
    difference that is left in the sample's coarse bin. What differs within a bin is
    neglected: a new score is as good as linear in the old one there. All are 0 where the
    sample is all rows.

    `location` and `scale` are the mean and deviation of the sample's scores over all rows,
    `bins` (2, features, BINS) the differences of both.
    """

    location: tuple[Floats, Floats]
    scale: tuple[Floats, Floats]
    bins: Floats

    @classmethod
    def between(cls, old: Projection, new: Projection, cells: Counted) -> Rescoring:
        """From the scores of `old` to those of `new`, under the counts of all rows."""
        location = moments(old.location, cells)
        scale = moments(old.scale, cells)
        number = np.maximum(old.coarse(cells), 1.0)

        def left(before: Scores, after: Scores, known: tuple[Floats, Floats]) -> Floats:
            mean, deviation = known[0][:, None], known[1][:, None]
            return old.coarse((after - (before - mean) / deviation) * cells) / number

        bins = (
            left(old.location, new.location, location),
            left(old.scale, new.scale, scale),
        )
        return cls(location, scale, np.stack(bins))

    def part(self, features: slice) -> Rescoring:
        """Return those of some features."""
        location, scale = (
            (mean[features], deviation[features])
            for mean, deviation in (self.location, self.scale)
        )
        return Rescoring(location, scale, self.bins[:, features])

    def scores(
        self,
        finite: Floats,
        location: Floats,
        scale: Floats,
        bins: Floats | NDArray[np.uint32],
    ) -> tuple[Floats, Floats]:
        """Sums (..., features) of both scores; `bins` are (..., features, BINS)."""
        first, second = (
            (sums - finite * mean) / deviation
            + np.einsum("...fb,fb->...f", bins, differences)
            for sums, (mean, deviation), differences in (
                (location, self.location, self.bins[0]),
                (scale, self.scale, self.bins[1]),
            )
        )
        return first, second

    def of(self, block: Summary) -> Summary:
        """Return the block with the scores of all rows."""
        location, scale = self.scores(
            block.finite, block.location, block.scale, block.bins
        )
        return replace(block, location=location, scale=scale)


def moments(scores: Scores, cells: Counted) -> tuple[Floats, Floats]:
    """Mean and deviation, over all rows, of scores that are the sample's, (features,)."""
    number = np.maximum(cells[:, : ABOVE + 1].sum(axis=1, dtype=np.float64), 1.0)
    mean = np.einsum("fc,fc->f", scores, cells) / number
    variance = np.einsum("fc,fc,fc->f", scores, scores, cells) / number - mean**2
    return mean, np.sqrt(np.where(variance > 1e-9, variance, 1.0))  # noqa: PLR2004
