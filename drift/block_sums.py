"""Sums over stretches of a reference's rows, from which its dependence is measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import ABOVE
from drift.projection import BINS, EVENTS, Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_BLOCKS: Final = 256

# Of a block: finite values, coarse bins and events are whole numbers; two sums are not.
_WHOLE: Final = 1 + BINS + len(EVENTS)
_SCORES: Final = 2


class BlockSums:
    """The sums of up to `MAX_BLOCKS` stretches of rows, exact, in 96 bytes a feature."""

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


def moments(
    scores: Floats, cells: NDArray[np.int64] | NDArray[np.uint32]
) -> tuple[Floats, Floats]:
    """Mean and deviation, over all rows, of scores that are the sample's, (features,)."""
    number = np.maximum(cells[:, : ABOVE + 1].sum(axis=1, dtype=np.float64), 1.0)
    mean = np.einsum("fc,fc->f", scores, cells) / number
    variance = np.einsum("fc,fc,fc->f", scores, scores, cells) / number - mean**2
    return mean, np.sqrt(np.where(variance > 1e-9, variance, 1.0))  # noqa: PLR2004


def standardised(
    block: Summary,
    location: tuple[Floats, Floats],
    scale: tuple[Floats, Floats],
) -> Summary:
    """A block whose scores have mean 0 and variance 1 over all rows, as phi supposes."""
    return replace(
        block,
        location=(block.location - block.finite * location[0]) / location[1],
        scale=(block.scale - block.finite * scale[0]) / scale[1],
    )
