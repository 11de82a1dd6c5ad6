"""The cells of a categorical feature: the reference's values, `other` and `unseen`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.grid import CELLS, MISSING, OTHER, UNSEEN
from drift.names import NO_NAMES, NameFilter, Names, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MAX_CATEGORIES: Final = 128
MAX_KNOWN: Final = 1 << 14
MAX_TEXT: Final = 256
MOST_NEW: Final = 0.5
"""Share of clean rows with new values above which new values are no evidence."""

_SURE: Final = 2.0
"""Standard errors by which the expected number of new values is taken too high."""
_NARROW: Final = (1 << 15) - 1
"""Integers below it may be looked up in the width they have, 16 bits or more."""


@dataclass(frozen=True, slots=True)
class CategoryGrid:
    """The cells of one categorical feature.

    `values` own a cell each, `others` share the cell `other`, anything else is
    `unseen`. With `open` the reference had more values than can be kept: nothing can
    be called unseen then, and unknown values count as `other`. `once` and `twice` are how
    many values the sample had once and twice; None in files of earlier programs.
    """

    values: Names
    others: NameFilter = NO_NAMES
    open: bool = False
    once: int | None = None
    twice: int = 0

    @property
    def expected_unseen(self) -> float | None:
        """Rows with new values among as many rows as the sample has; None if unknown."""
        return None if self.once is None else new_values(self.once, self.twice)

    def state(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "values": list(self.values),
            "others": self.others.state(),
            "open": self.open,
            "once": self.once,
            "twice": self.twice,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> CategoryGrid:
        """Restore what `state` of this program or an earlier one returned.

        Raises:
            StateError, KeyError, TypeError, ValueError: it cannot be read.
        """
        return cls(
            Names(map(short, state["values"])),
            NameFilter.from_state(state["others"]),
            bool(state["open"]),
            None if state.get("once") is None else int(state["once"]),
            int(state.get("twice", 0)),
        )


def new_values(once: int, twice: int) -> float:
    """Upper bound of the rows with new values among as many rows as the sample has.

    `once` and `twice` are how many values came once and twice in the sample. The bound is
    `once` and two standard errors of it.

    Reference: Good (1953), "The population frequencies of species and the estimation of
    population parameters".
    """
    return once + _SURE * math.sqrt(once + 2 * twice)


def canonical(value: object) -> str | None:
    """Return a type-independent spelling of a category; missing is None.

    Example:
        >>> [canonical(v) for v in (3, 3.0, True, b"red", None, float("nan"), "")]
        ['3', '3', '1', 'red', None, None, None]

    Texts are distinguished by their first `MAX_TEXT` characters, and kept as `short`.
    """
    if value is None:
        return None
    if isinstance(value, bytes):
        value = value[: 4 * MAX_TEXT].decode("utf-8", "replace")
    if isinstance(value, str):
        return short(value[:MAX_TEXT]) or None
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return None
        if np.isfinite(value) and value == int(value):
            return str(int(value))
    return short(str(value)[:MAX_TEXT])


def build_category_grid(counts: Mapping[str, int], *, complete: bool) -> CategoryGrid:
    """Choose the cells from reference counts of canonical values, in order of name.

    `complete` is true if `counts` holds every value the reference had.
    """
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    top, rest = ranked[:MAX_CATEGORIES], ranked[MAX_CATEGORIES:]
    often = Counter(counts.values())
    kept_all = complete and len(rest) <= MAX_KNOWN
    if rest and often[1] > MOST_NEW * sum(counts.values()):
        kept_all = False
    if not kept_all:
        return CategoryGrid(Names(sorted(top)), NO_NAMES, open=True)
    return CategoryGrid(
        Names(sorted(top)), NameFilter.of(rest), once=often[1], twice=often[2]
    )


class CategoryTable:
    """Counts categorical columns: integers by lookup, anything else by its text."""

    _SPAN: Final = 1 << 11

    def __init__(self, grid: CategoryGrid) -> None:
        self._others = grid.others
        self._unknown = OTHER if grid.open else UNSEEN
        # Python's own hash: quick, and of this process alone. Equal ones of two among
        # 128 names have chance 4e-16.
        marks = np.array([hash(name) for name in grid.values], np.int64)
        order = np.argsort(marks)
        self._marks = marks[order]
        self._cell_of = order.astype(np.int16)
        self._least = 0
        self._narrow = False
        self._lookup: NDArray[np.int16] | None = None
        self._look_up(grid)

    def _look_up(self, grid: CategoryGrid) -> None:
        """Build a table of integers, if they are close together and all known."""
        if grid.others:
            return
        numbers = {
            int(name): cell
            for cell, name in enumerate(grid.values)
            if _is_plain_integer(name)
        }
        self._least = min(numbers, default=0)
        span = max(numbers, default=-1) - self._least + 1
        if span <= self._SPAN:
            # One unknown cell on either side.
            self._lookup = np.full(span + 2, self._unknown, np.int16)
            self._narrow = max(abs(self._least), abs(self._least + span)) < _NARROW
            for number, cell in numbers.items():
                self._lookup[number - self._least + 1] = cell

    def cells(self, values: Sequence[str | None]) -> list[int]:
        """The cells of canonical values, in order; `None` is missing."""
        marks = np.array([hash(value) for value in values], np.int64)
        places = np.searchsorted(self._marks, marks)
        places[places == self._marks.size] = 0
        found = np.zeros(marks.size, bool)
        cells = np.zeros(marks.size, np.int16)
        if self._marks.size:
            found = self._marks[places] == marks
            cells = self._cell_of[places]
        return [
            MISSING
            if value is None
            else int(cell)
            if known
            else OTHER
            if value in self._others
            else self._unknown
            for value, known, cell in zip(values, found, cells, strict=True)
        ]

    def cells_of(self, column: NDArray[np.integer] | list[object]) -> NDArray[np.int16]:
        """The cell of each value of a column."""
        if not isinstance(column, list) and self._lookup is not None:
            if not self._narrow:
                column = column.astype(np.int64)
            # Both ends are the unknown cell, so that a clipped value is looked up as is.
            return self._lookup.take(column - (self._least - 1), mode="clip")
        values = column if isinstance(column, list) else column.tolist()
        known = list(dict.fromkeys(values))
        cells = dict(
            zip(known, self.cells([canonical(value) for value in known]), strict=True)
        )
        return np.array([cells[value] for value in values], np.int16)

    def count(self, column: NDArray[np.integer] | list[object]) -> NDArray[np.int64]:
        """Count a column into (CELLS,)."""
        if not isinstance(column, list) and self._lookup is not None:
            return np.bincount(self.cells_of(column), minlength=CELLS)
        raw = Counter(column if isinstance(column, list) else column.tolist())
        cells = self.cells([canonical(value) for value in raw])
        counts = np.zeros(CELLS, np.int64)
        np.add.at(counts, np.array(cells, np.intp), list(raw.values()))
        return counts


def _is_plain_integer(value: str) -> bool:
    digits = value.removeprefix("-")
    return (
        digits.isascii()
        and digits.isdigit()
        and len(digits) < MAX_TEXT // 16
        and str(int(value)) == value
    )
