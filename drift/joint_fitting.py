"""The correlations between the columns of a reference, fitted from its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import MISSING, UNSEEN
from drift.joint import (
    BATCH,
    LEAST_DEVIATION,
    LEVEL_COLUMN,
    MAX_COLUMNS,
    USUAL,
    Code,
    JointModel,
    category_codes,
    encoded,
    fisher,
    levels_of,
    score,
)
from drift.reference import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from drift.categories import CategoryGrid
    from drift.joint import Cells, Narrow

    Floats = NDArray[np.float64]

MIN_BATCHES: Final = 32
UNUSUAL: Final = 1 / 16
"""Share of the reference's batches with a score above the limit."""

_FOLDS: Final = 8
_MAX_KURTOSIS: Final = 20.0
"""A column with more has too few unlike rows in a batch: a flag set in 5 % of rows has 18."""
_TO_SIGMA: Final = 1.349
_TOGETHER: Final = 64


def fit_joint(
    numeric: NDArray[np.floating],
    cells: Sequence[Cells],
    quantiles: Floats,
    categories: Sequence[CategoryGrid],
) -> tuple[JointModel, list[int]] | str:
    """The model of a sample's rows and the cells of its batches, or why there is none.

    `quantiles` are those of the numbers at `LEVELS`, `cells` the cells of the categories.
    The reason is empty where there is no pair of columns to compare.

    Each eighth of the batches is compared with the other seven, since a batch is nearer to
    a mean that it is part of than any batch to come.
    """
    scales, codes = _scales(numeric, quantiles), _codes(cells, categories)
    features = scales[0].size + sum(code.chosen.size > 0 for code in codes)
    if features < 2:  # noqa: PLR2004 - a pair
        return ""
    columns = scales[0].size + sum(code.chosen.size for code in codes)
    if columns > MAX_COLUMNS:
        return (
            f"correlations between columns: the rows have {columns}; "
            f"of at most {MAX_COLUMNS} they are compared"
        )
    batches = numeric.shape[0] // BATCH
    if batches < MIN_BATCHES:
        return (
            f"correlations between columns: the reference has {numeric.shape[0]} rows; "
            f"at least {MIN_BATCHES * BATCH} are needed"
        )

    levels = levels_of(scales[0].size, codes)

    def fishers() -> Iterator[tuple[Narrow, NDArray[np.bool_]]]:
        for start in range(0, batches * BATCH, _TOGETHER * BATCH):
            stop = min(start + _TOGETHER * BATCH, batches * BATCH)
            rows = encoded(
                numeric[start:stop], [c[start:stop] for c in cells], scales, codes
            )
            for place in range(0, stop - start, BATCH):
                yield fisher(rows[place : place + BATCH], levels)

    fold = np.arange(batches) * _FOLDS // batches
    first, second = np.zeros((2, _FOLDS, columns, columns))
    for place, (z, _) in zip(fold, fishers(), strict=True):
        first[place] += z
        second[place] += z**2
    sizes = np.bincount(fold, minlength=_FOLDS)
    one = _of_one_category(scales[0].size, codes)
    moments = [
        _moments(
            first.sum(0) - first[k], second.sum(0) - second[k], batches - sizes[k], one
        )
        for k in range(_FOLDS)
    ]
    scores = np.array(
        [
            score(z, constant, *moments[place])
            for place, (z, constant) in zip(fold, fishers(), strict=True)
        ]
    )
    limit = float(np.sort(scores)[-1 - max(round(batches * UNUSUAL), 1)])
    mean, deviation = _moments(first.sum(0), second.sum(0), batches, one)
    model = JointModel(*scales, tuple(codes), mean, deviation, limit)
    return model, [UNSEEN if apart > limit else USUAL for apart in scores]


def _of_one_category(numeric: int, codes: Sequence[Code]) -> NDArray[np.bool_]:
    """Return which pairs of columns are of the same category, (columns, columns)."""
    sizes = [code.chosen.size for code in codes]
    owner = np.concatenate(
        (np.full(numeric, -1), np.repeat(np.arange(len(sizes)), sizes))
    )
    return np.asarray((owner[:, None] == owner) & (owner >= 0))


def _moments(
    first: Floats, second: Floats, number: int, one_category: NDArray[np.bool_]
) -> tuple[Narrow, Narrow]:
    mean = first / number
    variance = np.maximum(second - number * mean**2, 0.0) / (number - 1)
    deviation = np.maximum(np.sqrt(variance), LEAST_DEVIATION)
    deviation[one_category] = np.inf
    return mean.astype(np.float32), deviation.astype(np.float32)


def _scales(
    numeric: NDArray[np.floating], quantiles: Floats
) -> tuple[NDArray[np.intp], Floats, Floats]:
    """The numeric columns that take part, their medians and widths."""
    lower, centre, upper = (quantiles[:, LEVELS.index(q)] for q in (0.25, 0.5, 0.75))
    with np.errstate(over="ignore"):
        spread, span = upper - lower, quantiles[:, -1] - quantiles[:, 0]
    width = np.where(spread > 0, spread / _TO_SIGMA, span)
    varies = np.flatnonzero((width > 0) & np.isfinite(width))
    rows = encoded(numeric, (), (varies, centre[varies], width[varies]), ())
    used = varies[_usable(rows)]
    return used, centre[used], width[used]


def _codes(cells: Sequence[Cells], categories: Sequence[CategoryGrid]) -> list[Code]:
    found = []
    for column, category in zip(cells, categories, strict=True):
        code = category_codes(category)
        shares = np.bincount(column, minlength=code.shape[0]) / max(column.size, 1)
        usable = _usable(code[column])
        if code.shape[1] > LEVEL_COLUMN:
            # In place of the finest halving: no more columns for the same category.
            usable[LEVEL_COLUMN] = usable[:LEVEL_COLUMN].any()
            usable[0] = False
        chosen = np.flatnonzero(usable)
        # Missing values are the mean of the others.
        shares[MISSING] = 0.0
        mean = (shares @ code[:, chosen]) / max(float(shares.sum()), 1e-9)
        found.append(Code.of(category, chosen, mean))
    return found


def _usable(rows: Narrow) -> NDArray[np.bool_]:
    """The columns that vary, and not in a few rows only."""
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    squares = centred**2
    variance = squares.mean(axis=0)
    fourth = (squares**2).mean(axis=0)
    usable = variance > 1e-9  # noqa: PLR2004 - of columns within -4 to 4
    return np.asarray(usable & (fourth <= _MAX_KURTOSIS * variance**2))
