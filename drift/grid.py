"""Fixed cells per feature, chosen once from the reference: counting is then one pass.

Every feature, numeric or categorical, has the same `CELLS` cells, so that counts of a
whole model are one array of shape (features, CELLS):

    numeric      0 below | 1..256 inner cells | 257 above | 258 NaN | 259 -Inf | 260 +Inf
    categorical  0..127 the reference's commonest values | 256 other | 257 unseen | 258 missing
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    FloatType = np.dtype[np.float32] | np.dtype[np.float64]

INNER: Final = 256
CELLS: Final = 261
BELOW: Final = 0
ABOVE: Final = 257
MISSING: Final = 258
MINUS_INF: Final = 259
PLUS_INF: Final = 260
OTHER: Final = 256
UNSEEN: Final = 257

_POINT_WIDTH: Final = 2.0**-20
"""Cells that are narrower, in proportion to their values, hold one value."""
SMALLEST: Final = float(np.finfo(np.float32).tiny)
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


@dataclass(frozen=True, slots=True)
class NumericGrid:
    """The cells of all numeric features.

    A feature's inner cells are equally wide, cell = 1 + floor((x - low) / width), unless
    `cuts` has its edges: at most 257, increasing, the first inner cell between the first
    two. `low` and `width` have shape (features,), in the feature's own unit; `dtype` is
    float32 unless some feature's cells are too fine for it.
    """

    low: Floats
    width: Floats
    dtype: FloatType
    cuts: Mapping[int, Floats] = field(default_factory=dict)
    _whole: Mapping[int, tuple[float, int]] = field(
        init=False, repr=False, compare=False
    )
    """Features cut at consecutive whole numbers: the first of these, and how many."""

    def __post_init__(self) -> None:
        found = {
            feature: (float(edges[0]), edges.size // 2)
            for feature, edges in self.cuts.items()
            if np.array_equal(edges, whole_edges(edges[0], edges.size // 2, self.dtype))
        }
        object.__setattr__(self, "_whole", found)

    @property
    def features(self) -> int:
        """Return how many features the grid covers."""
        return int(self.low.shape[0])

    def count(self, rows: NDArray[np.floating]) -> NDArray[np.int64]:
        """Count `rows` (n, features) of `self.dtype` into (features, CELLS).

        Works in place: the contents of `rows` are lost. Ties to a cell's lower edge
        belong to the cell. Any value, NaN and infinities included, lands in one cell.
        """
        counts = np.zeros((self.features, CELLS), np.int64)
        self.add(rows, counts)
        return counts

    def add(
        self,
        rows: NDArray[np.floating],
        counts: NDArray[np.int64] | NDArray[np.uint32],
    ) -> None:
        """Add the counts of `rows`, as `count` gives them, to `counts`."""
        if rows.size:
            for part in feature_slices(self.features):
                more = self._count(rows[:, part], part)
                np.add(counts[part], more, out=counts[part], casting="unsafe")

    def _count(self, rows: NDArray[np.floating], part: slice) -> NDArray[np.int64]:
        cut = {
            feature - part.start: _cells_between(edges, rows[:, feature - part.start])
            for feature, edges in self.cuts.items()
            if part.start <= feature < part.stop and feature not in self._whole
        }
        places = [f - part.start for f in self._whole if part.start <= f < part.stop]
        with np.errstate(over="ignore", invalid="ignore"):
            whole = self._between_whole(rows[:, places], part.start, places)
            low, width = self.low[part], self.width[part]
            np.subtract(rows, (low - width).astype(self.dtype), out=rows)
            np.multiply(rows, (1.0 / width).astype(self.dtype), out=rows)
            if places:
                rows[:, places] = whole
            if np.isfinite(rows.sum()):
                return _tally(rows, cut)
            return _count_unclean(rows, cut)

    def _between_whole(
        self, values: NDArray[np.floating], start: int, places: list[int]
    ) -> NDArray[np.floating]:
        """Return cells of whole numbers and of values between two, without a search."""
        if not places:
            return values
        known = [self._whole[start + place] for place in places]
        bounds: NDArray[np.floating] = np.array(known, self.dtype)
        np.subtract(values, bounds[:, 0], out=values)
        cells: NDArray[np.floating] = np.ceil(values)
        cells += np.floor(values, out=values)
        # Beyond the last one; infinity stays what it is.
        np.add(cells, ABOVE, out=cells, where=cells > 2 * bounds[:, 1] - 2)
        cells += 1
        return cells

    def edges(self, feature: int) -> Floats:
        """The 257 inner edges of one feature, in its own unit.

        Where it has fewer cells, the last edge comes again.
        """
        cuts = self.cuts.get(feature)
        if cuts is not None:
            return np.pad(
                np.asarray(cuts, np.float64), (0, INNER + 1 - cuts.size), "edge"
            )
        steps = np.arange(INNER + 1.0)
        return np.asarray(self.low[feature] + self.width[feature] * steps)

    def places(self, feature: int) -> Floats:
        """The inner edges along an axis on which they span `INNER`."""
        if feature not in self.cuts:
            return np.arange(INNER + 1.0)
        edges = self.edges(feature)
        span = edges[-1] - edges[0]
        return np.asarray((edges - edges[0]) * (INNER / span))

    def points(self, feature: int) -> NDArray[np.bool_]:
        """The cells (CELLS,) that hold one value alone."""
        found = np.zeros(CELLS, bool)
        if feature in self.cuts:
            edges = self.edges(feature)
            size = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))
            wide = np.diff(edges)
            found[BELOW + 1 : ABOVE] = (wide > 0) & (
                wide <= np.maximum(size * _POINT_WIDTH, SMALLEST)
            )
        return found

    def label(self, feature: int, first: int, last: int) -> str:
        """Cells `first..last` in the feature's own unit, for a person to read."""
        edges = np.concatenate(([-np.inf], self.edges(feature), [np.inf]))
        low, high = float(edges[first]), float(edges[last + 1])
        points = self.points(feature)
        if first == last and points[first]:
            return f"{_between(low, high):.6g}"
        opens = "(" if first > 0 and points[first - 1] else "["
        closes = "]" if points[last] else ")"
        return f"{opens}{low:.6g}, {high:.6g}{closes}"


def whole_edges(first: float, number: int, dtype: FloatType) -> Floats:
    """Edges around each of consecutive whole numbers."""
    values = (first + np.arange(number)).astype(dtype)
    above = np.nextafter(values, dtype.type(np.inf))
    return np.stack((values, above), axis=1).reshape(-1).astype(np.float64)


def _between(low: float, high: float) -> float:
    return 0.0 if low <= 0.0 <= high else low + (high - low) / 2


def _cells_between(edges: Floats, column: NDArray[np.floating]) -> NDArray[np.intp]:
    """The cells of a column's values; of NaN any."""
    cells = np.searchsorted(edges.astype(column.dtype, copy=False), column, "right")
    cells[cells == edges.size] = ABOVE
    return cells


def _count_unclean(
    scaled: NDArray[np.floating], cut: Mapping[int, NDArray[np.intp]]
) -> NDArray[np.int64]:
    is_missing = np.isnan(scaled)
    missing = is_missing.sum(axis=0)
    low = np.isneginf(scaled).sum(axis=0)
    high = np.isposinf(scaled).sum(axis=0)
    np.fmax(scaled, 0.0, out=scaled)
    for feature, cells in cut.items():
        cells[is_missing[:, feature]] = BELOW
    counts = _tally(scaled, cut)
    counts[:, BELOW] -= missing + low
    counts[:, ABOVE] -= high
    counts[:, MISSING] += missing
    counts[:, MINUS_INF] += low
    counts[:, PLUS_INF] += high
    return counts


def _tally(
    scaled: NDArray[np.floating], cut: Mapping[int, NDArray[np.intp]]
) -> NDArray[np.int64]:
    features = scaled.shape[1]
    np.clip(scaled, 0.0, ABOVE + 0.5, out=scaled)
    # 32 bits halve the traffic of memory, of which there is more than arithmetic.
    cells = scaled.astype(np.int32)
    for feature, known in cut.items():
        cells[:, feature] = known
    cells += np.arange(features, dtype=np.int32) * np.int32(CELLS)
    flat = np.bincount(cells.reshape(-1), minlength=features * CELLS)
    return flat.reshape(features, CELLS)
