"""Choose the cells of numeric features, from the values of a reference's sample.

A change is seen where values change cells. So no cell may hold much of the sample unless
all of it is one value. Whole numbers get a cell each where there are few. Where equally
wide cells hold too much, as with prices, many zeros or heavy tails, each common value gets
a cell of its own and the rest is cut at quantiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import INNER, SMALLEST, NumericGrid, feature_slices, whole_edges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.grid import FloatType

    Floats = NDArray[np.float64]

TAIL: Final = 0.0005

_PHASES: Final = 16
_ATOM_SHARE: Final = 0.002
_MAX_ATOMS: Final = 64
_MIN_RESOLUTION: Final = 64.0
_HEAVY_SHARE: Final = 1 / 20
_HEAVY_ROWS: Final = 8
_EXACT: Final = 0.25
"""Whole numbers up to it over a type's precision have room between each other."""
_POINT_SHARE: Final = 1 / 64
_POINT_ROWS: Final = 4
_STRETCH_SHARE: Final = 1 / 128
# Fractions that differ by less are one, as a float32 and a float64 of it are.
_POINT_SLACK: Final = 2.0**-23


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
    return _cut_where_needed(rows, NumericGrid(low, width, dtype))


def _cut_where_needed(rows: NDArray[np.floating], grid: NumericGrid) -> NumericGrid:
    cuts: dict[int, Floats] = {}
    for part in feature_slices(grid.features):
        with np.errstate(over="ignore"):
            known: NDArray[np.floating] = rows[:, part].astype(grid.dtype)
        even = NumericGrid(grid.low[part], grid.width[part], grid.dtype)
        counts = even.count(known.copy())[:, : INNER + 2]
        size = counts.sum(axis=1)
        heavy = counts.max(axis=1) >= np.maximum(_HEAVY_SHARE * size, _HEAVY_ROWS)
        for place in range(known.shape[1]):
            column = known[np.isfinite(known[:, place]), place].astype(np.float64)
            edges = _whole(column, grid.dtype)
            if edges is None and heavy[place]:
                edges = _cut(column, grid.dtype)
            if edges is not None:
                cuts[part.start + place] = edges
    return NumericGrid(grid.low, grid.width, grid.dtype, cuts)


def _whole(finite: Floats, dtype: FloatType) -> Floats | None:
    """Edges around each of the whole numbers; None where there are others, or many."""
    if finite.size == 0 or not np.all(finite == np.rint(finite)):
        return None
    bottom, top = np.quantile(finite, (TAIL, 1.0 - TAIL))
    least = float(finite.min())
    # The least value belongs inside when it is near: a bounded count has no left tail.
    first = least if bottom - least <= 1 else float(np.floor(bottom))
    number = float(np.ceil(top)) - first + 1
    if number > INNER // 2 or abs(first) + number > _EXACT / np.finfo(dtype).eps:
        return None
    return whole_edges(first, int(number), dtype)


def _cut(finite: Floats, dtype: FloatType) -> Floats:
    """Edges around every common value, and of stretches of about equal share between."""
    values, counts = np.unique(finite, return_counts=True)
    common = counts >= max(_POINT_SHARE * finite.size, _POINT_ROWS)
    below, above = _around(values, dtype)
    # The 0.05 % of either tail lie outside, but for what is as common as that.
    cumulative = np.cumsum(counts) / finite.size
    first = int(np.searchsorted(cumulative, TAIL))
    last = int(np.searchsorted(cumulative, 1.0 - TAIL))
    rest, weight = values[~common], counts[~common]
    stretch = np.cumsum(weight) - weight
    number = np.floor(stretch / (_STRETCH_SHARE * finite.size))
    group = np.searchsorted(values[common], rest)
    between = (np.diff(group) == 0) & (np.diff(number) > 0)
    middles = rest[:-1] / 2 + rest[1:] / 2
    inner = middles[between].astype(dtype).astype(np.float64)
    inner = inner[(inner > below[first]) & (inner < above[last])]
    return np.unique(
        np.concatenate(
            (below[[first]], below[common], above[common], inner, above[[last]])
        )
    )


def _around(values: Floats, dtype: FloatType) -> tuple[Floats, Floats]:
    """Edges directly below and above each of increasing values."""
    apart = np.diff(values, prepend=-np.inf, append=np.inf)
    slack = np.maximum(np.abs(values) * _POINT_SLACK, SMALLEST)
    slack = np.minimum(slack, np.minimum(apart[:-1], apart[1:]) / 4)
    # Whole numbers are the same in both.
    slack = np.where(values == np.rint(values), 0.0, slack)
    known = values.astype(dtype)
    below = np.minimum((values - slack).astype(dtype), known)
    above = np.maximum(
        (values + slack).astype(dtype), np.nextafter(known, dtype.type(np.inf))
    )
    return below.astype(np.float64), above.astype(np.float64)


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
