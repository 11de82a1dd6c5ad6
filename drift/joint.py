"""Correlation between columns: a score for each batch of consecutive rows.

`BATCH` consecutive rows give the correlation of every pair of columns. Of each, Fisher's z
is compared with its mean over the reference's batches, in units of its deviation there; the
score of the batch is the largest of these. A batch whose score exceeds the limit that one in
sixteen of the reference exceeded is `unusual`. Alarms test whether these became more: one
more feature, (joint), with the evidence of a rate.

The values of a category have no order: which of them become tied to a number is not known.
So a category of many values has, beside some columns of 0 and 1, a column of `levels`. Its
"correlation" with another column is the share of that column's variance that lies between
the levels (the correlation ratio), less what chance gives for so many levels.

Correlations are about the batch's own means and deviations, so a shift or another scale of
a column does not count. Nothing is inverted: collinear columns are ordinary ones.
Rows that depend on each other change the scores of the reference as they change those of
traffic, as long as batches are of consecutive rows on both sides: of long windows whole
batches are left out, never rows of one.

References: Fisher (1921), "On the probable error of a coefficient of correlation deduced
from a small sample"; Kelley (1935), "An unbiased correlation ratio measure", for the part
of chance.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.categories import CategoryGrid
from drift.errors import StateError
from drift.grid import CELLS, MISSING, UNSEEN
from drift.names import Names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Narrow = NDArray[np.float32]
    Cells = NDArray[np.integer]

BATCH: Final = 64
MAX_COLUMNS: Final = 256
USUAL: Final = 0
CATEGORY: Final = CategoryGrid(Names(("usual",)), once=0)
"""The cells of the feature: usual batches, and `unseen` for unusual ones."""

_CLIP: Final = 4.0
_MOST: Final = 0.999
_FEW_VALUES: Final = 5
_BITS: Final = 4
LEVEL_COLUMN: Final = _BITS
"""The column of `category_codes` with the number of the value's cell."""
_LEAST_RATIO: Final = -0.5
LEAST_DEVIATION: Final = float(1.0 / np.sqrt(BATCH - 3))
"""Of Fisher's z of independent normal rows."""
_ONE_THREAD: Final = 1 << 18
"""Products of matrices up to this many steps stay in the calling thread."""


@dataclass(frozen=True, slots=True)
class Code:
    """The columns of one category: which of `category_codes`, and their means.

    `table` (CELLS, columns) has the value of each cell less the mean, 0 for missing.
    """

    chosen: NDArray[np.intp]
    mean: Floats
    table: Narrow

    @classmethod
    def of(cls, category: CategoryGrid, chosen: object, mean: object) -> Code:
        """Return the chosen columns of a category.

        Raises:
            IndexError: it has no such column.
            ValueError: there is not one mean for each.
        """
        places = np.array(chosen, np.intp).reshape(-1)
        means = np.array(mean, np.float64).reshape(places.shape)
        table = (category_codes(category)[:, places] - means).astype(np.float32)
        table[MISSING, places != LEVEL_COLUMN] = 0.0
        return cls(places, means, table)


@dataclass(frozen=True, slots=True)
class JointModel:
    """The correlations of a reference, with which batches are compared.

    `used` are the numeric features that take part, with their `centre` and `width`;
    `codes` the columns of each category. `mean` and `deviation` (columns, columns) are
    those of Fisher's z over the reference's batches. The deviation of two columns of one
    category is infinite: their correlation follows from the shares of its values.
    """

    used: NDArray[np.intp]
    centre: Floats
    width: Floats
    codes: tuple[Code, ...]
    mean: Narrow
    deviation: Narrow
    limit: float

    @property
    def levels(self) -> NDArray[np.intp]:
        """The columns of levels."""
        return levels_of(self.used.size, self.codes)

    def columns(
        self, numeric: NDArray[np.floating], categories: Sequence[Cells]
    ) -> Narrow:
        """Rows as bounded columns without missing values, (rows, columns)."""
        scales = self.used, self.centre, self.width
        return encoded(numeric, categories, scales, self.codes)

    def compare(self, batch: Narrow) -> tuple[int, Narrow]:
        """Return the cell of a batch, (BATCH, columns), whose contents are lost.

        Also return how far each pair of columns is from the reference, in deviations.
        """
        z, constant = fisher(batch, self.levels)
        apart = score(z, constant, self.mean, self.deviation)
        return (UNSEEN if apart > self.limit else USUAL), z

    def state(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "used": self.used,
            "centre": self.centre,
            "width": self.width,
            "codes": [[code.chosen, code.mean] for code in self.codes],
            "mean": _upper(self.mean),
            "deviation": _upper(self.deviation),
            "limit": self.limit,
        }

    @classmethod
    def from_state(
        cls, saved: dict[str, Any], numeric: int, categories: Sequence[CategoryGrid]
    ) -> JointModel:
        """Restore what `state` returned, beside the same `numeric` features and categories.

        Raises:
            StateError: it is not of these features.
            TypeError, ValueError, KeyError, IndexError: it cannot be read.
        """
        used = np.array(saved["used"], np.intp).reshape(-1)
        if used.size and not (used.min() >= 0 and used.max() < numeric):
            raise StateError(f"numeric features {used.tolist()} of {numeric}")
        codes = tuple(
            Code.of(category, *code)
            for category, code in zip(categories, saved["codes"], strict=True)
        )
        columns = used.size + sum(code.chosen.size for code in codes)
        return cls(
            used,
            np.array(saved["centre"], np.float64).reshape(used.shape),
            np.array(saved["width"], np.float64).reshape(used.shape),
            codes,
            _symmetric(saved["mean"], columns, 0.0),
            _symmetric(saved["deviation"], columns, 1.0),
            float(saved["limit"]),
        )


def _upper(matrix: Narrow) -> str:
    """The part above the diagonal of a symmetric matrix, as text."""
    places = np.triu_indices(matrix.shape[0], 1)
    return b64encode(matrix[places].astype("<f4").tobytes()).decode()


def _symmetric(text: str, columns: int, diagonal: float) -> Narrow:
    if not 1 < columns <= MAX_COLUMNS:
        raise StateError(f"correlations of {columns} columns")
    found = np.full((columns, columns), diagonal, np.float32)
    places = np.triu_indices(columns, 1)
    found[places] = np.frombuffer(b64decode(text), "<f4")
    found.T[places] = found[places]
    return found


def encoded(
    numeric: NDArray[np.floating],
    categories: Sequence[Cells],
    scales: tuple[NDArray[np.intp], Floats, Floats],
    codes: Sequence[Code],
) -> Narrow:
    """Rows as bounded columns: numbers of `scales`, then the `codes` of categories."""
    used, centre, width = scales
    # In the numbers' own type: of traffic that is 32 bits where these are enough.
    found = numeric.take(used, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        found -= centre.astype(found.dtype)
        found /= width.astype(found.dtype)
    np.minimum(found, _CLIP, out=found)
    np.maximum(found, -_CLIP, out=found)
    missing = np.isnan(found)
    if missing.any():
        found[missing] = 0.0
    parts = [code.table[cells] for code, cells in zip(codes, categories, strict=True)]
    return np.concatenate((found.astype(np.float32, copy=False), *parts), axis=1)


def levels_of(numeric: int, codes: Sequence[Code]) -> NDArray[np.intp]:
    """The columns of levels, beside `numeric` columns of numbers."""
    chosen = [code.chosen for code in codes]
    found = np.concatenate([np.full(numeric, -1, np.intp), *chosen])
    return np.flatnonzero(found == LEVEL_COLUMN)


def fisher(batch: Narrow, levels: NDArray[np.intp]) -> tuple[Narrow, NDArray[np.bool_]]:
    """Return Fisher's z of each pair of columns, and which columns are constant.

    It is 0 for a column with itself or a constant one, and for two columns of `levels`.
    """
    values = batch[:, levels]
    batch[:, levels] = 0.0
    batch -= batch.sum(axis=0) * np.float32(1.0 / batch.shape[0])
    size = np.sqrt(np.einsum("rc,rc->c", batch, batch))
    batch /= np.where(size > 0, size, np.float32(1.0))
    columns = batch.shape[1]
    step = max(_ONE_THREAD // max(columns**2, 1), 1)
    found = batch[:step].T @ batch[:step]
    for start in range(step, batch.shape[0], step):
        part = batch[start : start + step]
        found += part.T @ part
    np.minimum(found, _MOST, out=found)
    np.maximum(found, -_MOST, out=found)
    found.reshape(-1)[:: columns + 1] = 0.0
    z, constant = np.asarray(np.arctanh(found, out=found)), size == 0
    if levels.size:
        ratios, constant[levels] = _between_levels(batch, values)
        ratios[:, levels] = 0.0
        z[levels] = ratios
        z[:, levels] = z[levels].T
    return z, constant


def _between_levels(batch: Narrow, values: Narrow) -> tuple[Narrow, NDArray[np.bool_]]:
    """Fisher's z of the correlation ratio of columns by levels, (levels, columns).

    Also which columns of `values` show nothing, as all of their rows are of one level, or
    each of its own. The columns of `batch` have mean 0 and squares that add up to 1. With
    many levels chance makes the ratio vary more than a correlation would; z is reduced to
    the deviation of one, so that other shares of the values are no change of it.
    """
    rows, number = values.shape
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0).T.reshape(-1)
    begins = np.empty(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    begins[::rows] = True
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=ordered.size)
    # Products with 0 and 1 take a fifth of the time of sums by level.
    member = np.zeros((starts.size, rows), np.float32)
    place = np.repeat(np.arange(starts.size), sizes)
    member[place, order.T.reshape(-1)] = (1.0 / np.sqrt(sizes))[place]
    step = max(_ONE_THREAD // batch.size, 1)
    sums = np.concatenate(
        [member[start : start + step] @ batch for start in range(0, starts.size, step)]
    )
    sums *= sums
    first = np.searchsorted(starts, np.arange(number) * rows)
    between = np.diff(first, append=starts.size)[:, None] - 1.0
    within = rows - 1.0 - between
    nothing = (between == 0) | (within == 0)
    within[nothing] = 1.0
    ratio = (np.add.reduceat(sums, first, axis=0) * (rows - 1.0) - between) / within
    np.clip(ratio, _LEAST_RATIO, _MOST, out=ratio)
    deviation = np.sqrt(2.0 * between / within / (rows + 1.0))
    reduced = LEAST_DEVIATION / np.maximum(deviation, LEAST_DEVIATION)
    z = np.where(nothing, 0.0, np.arctanh(ratio) * reduced)
    return z.astype(np.float32), nothing[:, 0]


def score(
    z: Narrow, constant: NDArray[np.bool_], mean: Narrow, deviation: Narrow
) -> float:
    """Return the score of a batch from Fisher's z of its pairs.

    `z` becomes how far each pair is from its mean, in deviations. A column that is constant in the batch shows nothing: a value that vanished changes that
    column alone.
    """
    z -= mean
    z /= deviation
    if constant.any():
        z[constant] = 0.0
        z[:, constant] = 0.0
    return max(float(z.max()), -float(z.min()))


def category_codes(category: CategoryGrid) -> Narrow:
    """Columns for the values of a category, (CELLS, columns), not yet centred.

    Of up to `_FEW_VALUES` values each but one has a column. More are put into 16 groups in
    the order of their names, and each of four columns halves the groups; a fifth has the
    levels.
    """
    number = len(category.values)
    if number <= _FEW_VALUES:
        found = np.zeros((CELLS, max(number - (not category.others), 0)), np.float32)
        columns = np.arange(found.shape[1])
        found[columns, columns] = 1.0
        return found
    group = np.arange(number) * min(1 << _BITS, number) // number
    bits = (group[:, None] >> np.arange(_BITS)) & 1
    found = np.zeros((CELLS, _BITS + 1), np.float32)
    found[:number, :_BITS] = bits
    found[:, LEVEL_COLUMN] = np.arange(CELLS)
    return found
