"""The cells of a categorical feature: the reference's values, `other` and `unseen`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import CELLS, MISSING, OTHER, UNSEEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MAX_CATEGORIES: Final = 256
MAX_KNOWN: Final = 2048
MAX_TEXT: Final = 256


@dataclass(frozen=True, slots=True)
class CategoryGrid:
    """The cells of one categorical feature.

    `values` own a cell each, `others` share the cell `other`, anything else is
    `unseen`. With `open` the reference had more values than can be kept: nothing can
    be called unseen then, and unknown values count as `other`.
    """

    values: tuple[str, ...]
    others: frozenset[str] = frozenset()
    open: bool = False

    def cell(self, value: str | None) -> int:
        """The cell of one canonical value; `None` is missing."""
        return self.cells([value])[0]

    def cells(self, values: Sequence[str | None]) -> list[int]:
        """The cells of canonical values, in order."""
        known: dict[str | None, int] = {v: i for i, v in enumerate(self.values)}
        known.update(dict.fromkeys(self.others, OTHER))
        known[None] = MISSING
        unknown = OTHER if self.open else UNSEEN
        return [known.get(value, unknown) for value in values]


def canonical(value: object) -> str | None:
    """One spelling for a category, whatever type carried it; missing is None.

    Example:
        >>> [canonical(v) for v in (3, 3.0, True, b"red", None, float("nan"), "")]
        ['3', '3', '1', 'red', None, None, None]
    """
    if value is None:
        return None
    if isinstance(value, bytes):
        value = value[: 4 * MAX_TEXT].decode("utf-8", "replace")
    if isinstance(value, str):
        return value[:MAX_TEXT] or None
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return None
        if np.isfinite(value) and value == int(value):
            return str(int(value))
    return str(value)[:MAX_TEXT]


def build_category_grid(counts: Mapping[str, int], *, complete: bool) -> CategoryGrid:
    """Choose the cells from reference counts of canonical values, in order of name.

    `complete` says whether `counts` holds every value the reference had.
    """
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    top, rest = ranked[:MAX_CATEGORIES], ranked[MAX_CATEGORIES:]
    kept_all = complete and len(rest) <= MAX_KNOWN
    return CategoryGrid(
        tuple(sorted(top)), frozenset(rest) if kept_all else frozenset(), not kept_all
    )


class CategoryTable:
    """Counts categorical columns: integers by lookup, anything else by its text."""

    _SPAN: Final = 1 << 13

    def __init__(self, grid: CategoryGrid) -> None:
        self._grid = grid
        names = [v for v in (*grid.values, *grid.others) if _is_plain_integer(v)]
        numbers = dict(zip(map(int, names), grid.cells(names), strict=True))
        self._least = min(numbers, default=0)
        greatest = max(numbers, default=-1)
        span = greatest - self._least + 1
        self._lookup: NDArray[np.int16] | None = None
        if span <= self._SPAN:
            # One unknown cell on either side, so that a clipped value is looked up as is.
            unknown = grid.cell("\0")
            self._lookup = np.full(span + 2, unknown, np.int16)
            for number, cell in numbers.items():
                self._lookup[number - self._least + 1] = cell

    def count(self, column: NDArray[np.int64] | list[object]) -> NDArray[np.int64]:
        """Count a column into (CELLS,)."""
        if not isinstance(column, list) and self._lookup is not None:
            top = self._lookup.shape[0] - 1
            place = np.clip(column, self._least - 1, self._least + top - 1)
            place -= self._least - 1
            return np.bincount(self._lookup[place], minlength=CELLS)
        raw = Counter(column if isinstance(column, list) else column.tolist())
        cells = self._grid.cells([canonical(value) for value in raw])
        counts = np.zeros(CELLS, np.int64)
        np.add.at(counts, cells, list(raw.values()))
        return counts


def _is_plain_integer(value: str) -> bool:
    digits = value.removeprefix("-")
    return (
        digits.isascii()
        and digits.isdigit()
        and len(digits) < MAX_TEXT // 16
        and str(int(value)) == value
    )
