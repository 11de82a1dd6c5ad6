"""Rows to counts, in memory that does not depend on traffic.

Requests land in a ring of `RING_BYTES` a feature and are counted a block at a time, so
that a one-row request costs a copy, not a pass. Counts are integers: adding them, over time
or over replicas, gives bit for bit what one pass over all rows would have given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.categories import CategoryGrid, CategoryTable
from drift.column_ring import Intake
from drift.errors import UNREADABLE, StateError
from drift.grid import (
    ABOVE,
    BELOW,
    CELLS,
    MINUS_INF,
    MISSING,
    PLUS_INF,
    UNSEEN,
    NumericGrid,
)
from drift.joint_counting import JointCounter
from drift.season import HOURS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from drift.features import Schema
    from drift.joint import JointModel
    from drift.joint_counting import JointSums

    Integers = NDArray[np.int64] | NDArray[np.uint32]

RING_BYTES: Final = 4096

_MOST_NARROW: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one stretch of traffic: `cells` (features, CELLS) and `rows`.

    Cells are of 32 bits where they fit, which halves their memory; sums are of 64.
    `numeric` features come first. `violations` counts requests by kind of schema
    violation and tensor, see `drift.column_ring`. `hours` counts rows by hour of the week,
    where that is known, for references with seasons. `joint` are sums over the batches of
    the joint feature; they are not saved.
    """

    cells: Integers
    rows: int
    numeric: int
    violations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    hours: Mapping[int, int] = field(default_factory=dict)
    joint: JointSums | None = field(default=None, compare=False)

    def __add__(self, other: Counts) -> Counts:
        if self.cells.shape != other.cells.shape or self.numeric != other.numeric:
            raise StateError(
                f"counts of {self.cells.shape[0]} features ({self.numeric} numeric) "
                f"meet counts of {other.cells.shape[0]} ({other.numeric} numeric); "
                "only counts over one profile can be merged"
            )
        return Counts(
            np.add(self.cells, other.cells, dtype=np.int64),
            self.rows + other.rows,
            self.numeric,
            dict(Counter(self.violations) + Counter(other.violations)),
            dict(Counter(self.hours) + Counter(other.hours)),
        )

    @classmethod
    def empty(cls, features: int, numeric: int) -> Counts:
        """Return counts of no rows."""
        return cls(np.zeros((features, CELLS), np.int64), 0, numeric)

    def state(self) -> dict[str, Any]:
        """Return values for JSON, and the cells as they are."""
        return {
            "numeric": self.numeric,
            "rows": self.rows,
            "cells": self.cells,
            "violations": [[*key, n] for key, n in sorted(self.violations.items())],
            "hours": sorted(self.hours.items()),
        }

    @classmethod
    def from_state(cls, payload: dict[str, Any]) -> Counts:
        """Restore counts from what `state` returned, after packing and unpacking.

        Raises:
            StateError: it cannot be read.
        """
        try:
            cells = np.array(payload["cells"], dtype=payload["cells"].dtype)
            return cls(
                cells.reshape(-1, CELLS),
                int(payload["rows"]),
                int(payload["numeric"]),
                _violations(payload),
                _hours(payload),
            )
        except UNREADABLE as error:
            raise StateError(f"cannot read the counts: {error!r}") from error

    @property
    def missing(self) -> Integers:
        """NaN, None and empty text per feature."""
        return self.cells[:, MISSING]

    @property
    def infinite(self) -> Integers:
        """Plus and minus infinity per feature; 0 for categories."""
        return self.cells[:, MINUS_INF] + self.cells[:, PLUS_INF]

    @property
    def outside(self) -> Integers:
        """Values out of the reference's range (numeric) or unseen in it (categorical)."""
        outside = self.cells[:, UNSEEN].copy()
        outside[: self.numeric] += self.cells[: self.numeric, BELOW]
        return outside

    @property
    def values(self) -> Integers:
        """All values per feature: the rows, or the batches of a joint feature."""
        return np.asarray(self.cells.sum(axis=1, dtype=np.int64))

    @property
    def finite(self) -> Integers:
        """Values that take part in a distribution: neither missing nor infinite."""
        return self.values - self.missing - self.infinite

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Return whether at least two values came and all of them fell into one cell."""
        finite = self.finite
        inner = self.cells[:, : ABOVE + 1]
        return np.asarray((finite > 1) & (inner.max(axis=1) == finite))


def _hours(payload: dict[str, Any]) -> dict[int, int]:
    # Programs before this one did not count them.
    found = {int(hour): int(rows) for hour, rows in payload.get("hours", ())}
    if not all(0 <= hour < HOURS for hour in found):
        raise ValueError(f"hours of the week {sorted(found)}")
    return found


def _violations(payload: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(str(k), str(t)): int(n) for k, t, n in payload["violations"]}


def _narrow(cells: Integers, rows: int) -> Integers:
    """A copy, of 32 bits where that is enough."""
    if rows < _MOST_NARROW:
        return cells.astype(np.uint32)
    return cells.astype(np.int64)


class Accumulator:
    """Counts requests into the window that is open.

    `update` takes tensors by name, each (rows, *row_shape). Nothing in a request can
    make it raise: what does not fit is counted as missing and as a violation.
    """

    def __init__(
        self,
        schema: Schema,
        grid: NumericGrid,
        categories: tuple[CategoryGrid, ...],
        joint: JointModel | None = None,
    ) -> None:
        self._grid = grid
        self._intake = Intake(
            schema,
            grid.dtype,
            RING_BYTES // grid.dtype.itemsize,
            count=self._count_category,
        )
        self._tables = tuple(CategoryTable(category) for category in categories)
        self._joint = None if joint is None else JointCounter(joint)
        # Of each category the cells of the rows in the ring, as far as they are counted.
        self._of_rows: list[list[NDArray[np.int16]]] = [[] for _ in categories]
        features = len(schema.features) + (joint is not None)
        self._cells: Integers = np.zeros((features, CELLS), np.uint32)
        self._rows = 0
        self._violations: Counter[tuple[str, str]] = Counter()
        self._hours: Counter[int] = Counter()

    def update(
        self, request: Mapping[str, NDArray[np.generic]], *, hour: int | None = None
    ) -> int:
        """Count one request, of an hour of the week; returns its number of rows."""
        rows = self._intake.copy_whole(request)
        rows = rows or self._intake.copy(request, self._flush)
        if hour is not None:
            self._hours[hour] += rows
        return rows

    def _flush(self) -> None:
        intake = self._intake
        if intake.violations:
            self._violations.update(intake.violations)
            intake.violations.clear()
        if intake.filled == 0:
            return
        self._widen()
        for index in range(len(self._tables)):
            self._count_category(index, intake.category(index))
        rows = intake.numeric[: intake.filled]
        if self._joint is not None:
            self._count_joint(self._joint, rows)
        numeric = self._grid.features
        if numeric:
            self._grid.add(rows, self._cells[:numeric])
        self._rows += intake.filled
        intake.clear()

    def _widen(self) -> None:
        if self._rows + self._intake.capacity >= _MOST_NARROW:
            self._cells = self._cells.astype(np.int64, copy=False)

    def _count_category(
        self, index: int, column: NDArray[np.integer] | list[object]
    ) -> None:
        self._widen()
        cells, table = self._cells[self._grid.features + index], self._tables[index]
        if self._joint is not None and self._joint.wants(self._intake.capacity):
            places = table.cells_of(column)
            self._of_rows[index].append(places)
            more = np.bincount(places, minlength=CELLS)
        else:
            more = table.count(column)
        np.add(cells, more, out=cells, casting="unsafe")

    def _count_joint(self, joint: JointCounter, rows: NDArray[np.floating]) -> None:
        if joint.wants(self._intake.capacity):
            categories = [np.concatenate(parts) for parts in self._of_rows]
            more = joint.add(rows, categories, thin=True)
            np.add(self._cells[-1], more, out=self._cells[-1], casting="unsafe")
        else:
            joint.leave_out(rows.shape[0])
        for parts in self._of_rows:
            parts.clear()

    @property
    def rows(self) -> int:
        """Rows of the window so far."""
        return self._rows + self._intake.filled

    def peek(self) -> Counts:
        """Return the counts so far; the window stays open."""
        self._flush()
        return Counts(
            _narrow(self._cells, self._rows),
            self._rows,
            self._grid.features,
            dict(self._violations),
            dict(self._hours),
            None if self._joint is None else self._joint.sums(),
        )

    def take(self) -> Counts:
        """Return the counts so far, and begin a new window."""
        counts = self.peek()
        self._cells[:] = 0
        self._rows = 0
        self._violations.clear()
        self._hours.clear()
        if self._joint is not None:
            self._joint.begin_window()
        return counts

    def batch(self) -> dict[str, Any] | None:
        """The rows that wait for a batch, as JSON values and arrays; after `peek`."""
        return None if self._joint is None else self._joint.state()

    def restore_batch(self, state: dict[str, Any]) -> None:
        """Restore what `batch` returned.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        if self._joint is not None:
            self._joint.resume(state)

    def restore(self, counts: Counts) -> None:
        """Restore saved counts.

        Raises:
            StateError: they belong to another profile.
        """
        total = self.peek() + counts
        self._cells = _narrow(total.cells, total.rows)
        self._rows = total.rows
        self._violations = Counter(total.violations)
        self._hours = Counter(total.hours)
