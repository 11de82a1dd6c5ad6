"""Fixed cells per feature, taken once from the reference: counting is then one pass.

Every feature, numeric or categorical, has the same `CELLS` cells, so that counts of a
whole model are one array of shape (features, CELLS):

    numeric      0 below | 1..256 an affine grid | 257 above | 258 NaN | 259 -Inf | 260 +Inf
    categorical  0..127 the reference's commonest values | 256 other | 257 unseen | 258 missing
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.parts import parts

if TYPE_CHECKING:
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
TAIL: Final = 0.0005

_PHASES: Final = 16
_ATOM_SHARE: Final = 0.002
_MAX_ATOMS: Final = 64
_MIN_RESOLUTION: Final = 64.0


@dataclass(frozen=True, slots=True)
class NumericGrid:
    """Affine grids of all numeric features: cell = 1 + floor((x - low) / width).

    `low` and `width` have shape (features,), in the feature's own unit; `dtype` is
    float32 unless some feature's cells are too fine for it.
    """

    low: Floats
    width: Floats
    dtype: FloatType

    @property
    def features(self) -> int:
        """Return how many features the grid covers."""
        return int(self.low.shape[0])

    def count(self, rows: NDArray[np.floating]) -> NDArray[np.int64]:
        """Count `rows` (n, features) of `self.dtype` into (features, CELLS).

        Works in place: `rows` holds rubbish afterwards. Ties to a cell's lower edge
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
            for part in parts(self.features):
                more = self._count(rows[:, part], part)
                np.add(counts[part], more, out=counts[part], casting="unsafe")

    def _count(self, rows: NDArray[np.floating], part: slice) -> NDArray[np.int64]:
        with np.errstate(over="ignore", invalid="ignore"):
            low, width = self.low[part], self.width[part]
            np.subtract(rows, (low - width).astype(self.dtype), out=rows)
            np.multiply(rows, (1.0 / width).astype(self.dtype), out=rows)
            if np.isfinite(rows.sum()):
                return _tally(rows)
            return _count_unclean(rows)

    def edges(self, feature: int) -> Floats:
        """The 257 inner edges of one feature, in its own unit."""
        steps = np.arange(INNER + 1.0)
        return np.asarray(self.low[feature] + self.width[feature] * steps)


def _count_unclean(scaled: NDArray[np.floating]) -> NDArray[np.int64]:
    missing = np.isnan(scaled).sum(axis=0)
    low = np.isneginf(scaled).sum(axis=0)
    high = np.isposinf(scaled).sum(axis=0)
    np.fmax(scaled, 0.0, out=scaled)
    counts = _tally(scaled)
    counts[:, BELOW] -= missing + low
    counts[:, ABOVE] -= high
    counts[:, MISSING] += missing
    counts[:, MINUS_INF] += low
    counts[:, PLUS_INF] += high
    return counts


def _tally(scaled: NDArray[np.floating]) -> NDArray[np.int64]:
    features = scaled.shape[1]
    np.clip(scaled, 0.0, ABOVE + 0.5, out=scaled)
    # 32 bits halve the traffic of memory, of which there is more than arithmetic.
    cells = scaled.astype(np.int32)
    cells += np.arange(features, dtype=np.int32) * np.int32(CELLS)
    flat = np.bincount(cells.reshape(-1), minlength=features * CELLS)
    return flat.reshape(features, CELLS)


def build_numeric_grid(
    rows: NDArray[np.floating], *, wide: bool = False
) -> NumericGrid:
    """Choose grids from reference rows (n, features): 0.05 % to 99.95 % of each.

    `wide` asks for float64 even where float32 would do, for tensors of wide types.

    Integers get cells whose edges lie between integers; other repeated values are
    kept away from edges, so that a value counted as float32 and as float64 falls
    into the same cell. Constant, empty and all-NaN columns get a defined grid.
    """
    chosen = [_affine(column) for column in np.asarray(rows, np.float64).T]
    low = np.array([pair[0] for pair in chosen], np.float64)
    width = np.array([pair[1] for pair in chosen], np.float64)
    reach = np.maximum(np.abs(low), np.abs(low + INNER * width))
    fine = width < _MIN_RESOLUTION * np.finfo(np.float32).eps * reach
    vast = reach > np.finfo(np.float32).max / INNER**2
    tiny = width < np.finfo(np.float32).tiny * INNER**2
    dtype: FloatType = np.dtype(np.float32)
    if wide or np.any(fine | vast | tiny):
        dtype = np.dtype(np.float64)
    return NumericGrid(low, width, dtype)


def _affine(column: Floats) -> tuple[float, float]:
    finite = column[np.isfinite(column)]
    if finite.size == 0:
        return 0.0, 1.0
    bottom, top = np.quantile(finite, (TAIL, 1.0 - TAIL))
    if np.all(finite == np.rint(finite)) and top - bottom < 2.0**53:
        return _integer_grid(float(finite.min()), float(bottom), float(top))
    span = float(top - bottom)
    if not span > abs(float(top)) * 1e-12 or not np.isfinite(span):
        return _grid_around(float(np.median(finite)))
    return _away_from_atoms(finite, float(bottom), span)


def _integer_grid(least: float, bottom: float, top: float) -> tuple[float, float]:
    width = float(np.ceil((top - bottom + 2.0) / INNER))
    # The least value belongs inside when it is near: a bounded count has no left tail.
    start = least if bottom - least <= width else np.floor(bottom)
    return float(start) - 0.5, max(width, 1.0)


def _grid_around(value: float) -> tuple[float, float]:
    width = max(abs(value), 1.0) * 2.0**-10
    return value - width * (INNER / 2 + 0.5), width


def _away_from_atoms(finite: Floats, bottom: float, span: float) -> tuple[float, float]:
    width = span / (INNER - 1)
    values, counts = np.unique(finite, return_counts=True)
    often = counts >= max(2.0, _ATOM_SHARE * finite.size)
    atoms = values[often][np.argsort(-counts[often], kind="stable")[:_MAX_ATOMS]]
    phases = (np.arange(_PHASES) + 0.5) / _PHASES
    if atoms.size == 0:
        return bottom - 0.5 * width, width
    places = ((atoms[:, None] - bottom) / width + phases) % 1.0
    gap = np.minimum(places, 1.0 - places).min(axis=0)
    return bottom - float(phases[int(np.argmax(gap))]) * width, width
