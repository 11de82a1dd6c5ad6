"""Scores and coarse bins of the fine cells: the input of alarms and distances.

All of it follows from the reference's counts alone, so it is computed, never stored.

Reference: van der Waerden (1952), normal scores; Hajek, Sidak, Sen (1999), ch. 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import (
    ABOVE,
    CELLS,
    OTHER,
    UNSEEN,
    feature_slices,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from drift.window import Counts

    Floats = NDArray[np.float64]
    Scores = NDArray[np.float32]
    Integers = NDArray[np.int64]
    Counted = NDArray[np.int64] | NDArray[np.uint32]

BINS: Final = 24
"""Few enough rows in each that what moves within one is not much (`docs/decisions/drift.md`)."""
FEWER_BINS: Final = 16
"""Of references made before there were `BINS`."""
EVENTS: Final = ("missing", "infinite", "outside")
ORDERED_CELLS: Final = ABOVE + 1

_ALONE: Final = 1.5


@dataclass(frozen=True, slots=True)
class Projection:
    """Tables of shape (features, CELLS), and how much of each feature is usable.

    `location` and `scale` are normal scores z and (z^2 - 1), each standardised to mean
    0 and variance 1 under the reference; both are 0 for categories, constants, and
    cells outside the distribution. `bins` maps a cell to one of `BINS` coarse bins of
    about equal reference share, or to `BINS` for "not in the distribution". `used`
    (features,) is the number of coarse bins. `between` (features,) is the bin of all
    cells that the reference left empty between cells of single values, or `BINS`.
    """

    location: Scores
    scale: Scores
    bins: NDArray[np.int8]
    used: Integers
    ordered: NDArray[np.bool_]
    between: Integers

    def is_between(self, feature: int, cell: int) -> bool:
        """Return whether a cell is between the reference's values."""
        place = self.between[feature]
        return bool(place < BINS and self.bins[feature, cell] == place)

    def part(self, features: slice) -> Projection:
        """Return the projection of some features."""
        return Projection(
            self.location[features],
            self.scale[features],
            self.bins[features],
            self.used[features],
            self.ordered[features],
            self.between[features],
        )

    def coarse(self, cells: Counted | Floats) -> Floats:
        """Sums over the coarse bins, (features, BINS), of counts in the fine cells."""
        binned = np.empty((cells.shape[0], BINS))
        for part in feature_slices(cells.shape[0]):
            binned[part] = _binned(self.bins[part], cells[part])
        return binned

    def summarise(self, counts: Counts) -> Summary:
        """The sufficient statistics of one window; all the alarms ever see of it."""
        events = np.stack((counts.missing, counts.infinite, counts.outside), axis=1)
        return Summary(
            counts.rows,
            counts.finite.astype(np.float64),
            np.einsum("fc,fc->f", self.location, counts.cells),
            np.einsum("fc,fc->f", self.scale, counts.cells),
            self.coarse(counts.cells),
            events.astype(np.float64),
        )


def _binned(bins: NDArray[np.int8], cells: Counted | Floats) -> Floats:
    features = bins.shape[0]
    place = bins + np.arange(features)[:, None] * (BINS + 1)
    weights = cells.reshape(-1).astype(np.float64)
    binned = np.bincount(
        place.reshape(-1), weights=weights, minlength=features * (BINS + 1)
    )
    return np.asarray(binned.reshape(features, BINS + 1)[:, :BINS], np.float64)


def trials(finite: Floats, events: Floats) -> Floats:
    """All values: those in the distribution, missing ones and infinite ones."""
    return np.asarray(finite + events[..., : EVENTS.index("outside")].sum(axis=-1))


def at_risk(number: Floats, events: Floats) -> Floats:
    """Return how many of `number` values could have had each kind of event (..., 3).

    Any value may be missing or infinite; only one that is neither can be out of range.
    """
    outside = EVENTS.index("outside")
    found = np.repeat(number[..., None], len(EVENTS), axis=-1)
    found[..., outside] -= events[..., :outside].sum(axis=-1)
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over one window or many: everything in it can be added and scaled.

    `rows`; per feature `finite` values, the sums of location and scale scores, `bins`
    (features, BINS) and `events` (features, 3) in the order of `EVENTS`.
    """

    rows: int
    finite: Floats
    location: Floats
    scale: Floats
    bins: Floats
    events: Floats

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.rows + other.rows,
            self.finite + other.finite,
            self.location + other.location,
            self.scale + other.scale,
            self.bins + other.bins,
            self.events + other.events,
        )


def project(
    reference: Counts, cut: Collection[int] = (), most: int = BINS
) -> Projection:
    """Scores and at most `most` bins from the reference's counts.

    Of the features in `cut` every value has its cell: cells without any are for values
    that the reference did not have.
    """
    features = reference.cells.shape[0]
    ordered = np.arange(features) < reference.numeric
    location, scale = _scores(reference.cells, ordered)
    bins = np.full((features, CELLS), BINS, np.int8)
    between = np.full(features, BINS)
    for index in range(features):
        values = reference.cells[index, :ORDERED_CELLS]
        if index in cut and values.any() and not values.all():
            bins[index, :ORDERED_CELLS] = _with_gaps(values, most)
            between[index] = bins[index].max(where=bins[index] < BINS, initial=0)
        elif ordered[index]:
            bins[index, :ORDERED_CELLS] = _equal_shares(values, most)
        else:
            bins[index, : UNSEEN + 1] = _categories(
                reference.cells[index, : UNSEEN + 1], most
            )
    used = np.where(bins < BINS, bins, -1).max(axis=1).astype(np.int64) + 1
    return Projection(location, scale, bins, used, ordered, between)


def _scores(cells: Counted, ordered: NDArray[np.bool_]) -> tuple[Scores, Scores]:
    from scipy.special import ndtri  # noqa: PLC0415 - 0.1 s, not at import

    inside = cells[ordered, :ORDERED_CELLS].astype(np.float64)
    total = np.maximum(inside.sum(axis=1, keepdims=True), 1.0)
    middle = np.cumsum(inside, axis=1) - 0.5 * inside
    rank = np.clip(middle, 0.5, total - 0.5) / total
    scores = np.where(total > 1, ndtri(np.clip(rank, 1e-12, 1 - 1e-12)), 0.0)
    # Zeros that are never written to take no memory: those of categories.
    location, scale = np.zeros((2, cells.shape[0], CELLS), np.float32)
    normal = _standardised(scores, inside, total)
    location[ordered, :ORDERED_CELLS] = normal
    scale[ordered, :ORDERED_CELLS] = _standardised(normal**2, inside, total)
    return location, scale


def _standardised(scores: Floats, weight: Floats, total: Floats) -> Floats:
    mean = (scores * weight).sum(axis=1, keepdims=True) / total
    centred = scores - mean
    variance = (centred**2 * weight).sum(axis=1, keepdims=True) / total
    varies = variance > 1e-9  # noqa: PLR2004 - a constant feature has no scores
    return np.where(varies, centred / np.sqrt(np.where(varies, variance, 1.0)), 0.0)


def _with_gaps(counts: Counted, most: int) -> Integers:
    """Coarse bins of the cells with values, and a last one of all those without."""
    filled = counts > 0
    bins = np.zeros(counts.shape[0], np.int64)
    bins[filled] = _equal_shares(counts[filled], most - 1)
    bins[~filled] = bins.max() + 1
    return bins


def _equal_shares(counts: Counted, most: int) -> Integers:
    """Coarse bins along an ordered feature; a cell with a bin's share stands alone."""
    total = int(counts.sum())
    if total == 0:
        return np.zeros(counts.shape[0], np.int64)
    heavy = counts >= max(_ALONE * total / most, 1)
    rest = total - int(counts[heavy].sum())
    room = max(1, most - 2 * int(heavy.sum()))
    share = max(rest / room, 1.0)
    bins = np.zeros(counts.shape[0], np.int64)
    current, held = 0, 0
    for cell, count in enumerate(counts):
        full = held > 0 and held + 0.5 * count > share
        alone = cell > 0 and (heavy[cell] or heavy[cell - 1])
        if (full or alone) and current < most - 1:
            current, held = current + 1, 0
        bins[cell] = current
        held += int(count)
    return bins


def _categories(counts: Counted, most: int) -> Integers:
    """Coarse bins of categories, chosen as little as possible by their own counts.

    Singling out the commonest values would bias their reference shares upward, and
    every later window would seem to have lost some. So few values stand alone, more
    are grouped in the order of their names, and of those too many to keep (some are in
    `other`) only the ones that are clearly common get bins of their own.
    """
    values = counts[:OTHER]
    total = int(values.sum())
    bins = np.zeros(counts.shape[0], np.int64)
    filled = np.flatnonzero(values)
    if counts[OTHER] > 0:
        common = filled[values[filled] * most >= total][: most - 1]
        bins[common] = np.arange(1, common.size + 1)
        return bins
    if filled.size < most:
        bins[filled] = np.arange(1, filled.size + 1)
        return bins
    bins[:OTHER] = _equal_shares(values, most)
    return bins


def cell_positions(edges: Floats) -> Floats:
    """The middles of the ordered cells between `edges` (..., 257); tails at the ends."""
    ends = edges[..., :1], edges[..., -1:]
    middles = (edges[..., :-1] + edges[..., 1:]) / 2
    return np.concatenate((ends[0], middles, ends[1]), axis=-1)
