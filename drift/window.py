"""Rows to counts, in memory that does not depend on traffic.

Requests land in a ring of `RING_ROWS` rows and are counted a block at a time, so that
a one-row request costs a copy, not a pass. Counts are integers: adding them, over time
or over replicas, gives bit for bit what one pass over all rows would have given.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from drift import codec
from drift.categories import CategoryGrid, CategoryTable
from drift.errors import StateError
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
from drift.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from drift.features import Schema

    Integers = NDArray[np.int64]

RING_ROWS: Final = 2048
KIND: Final = "counts"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """What one stretch of traffic held: `cells` (features, CELLS) and `rows` seen.

    `numeric` features come first. `violations` counts requests by kind of schema
    violation and tensor, see `drift.intake`.
    """

    cells: Integers
    rows: int
    numeric: int
    violations: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        if self.cells.shape != other.cells.shape or self.numeric != other.numeric:
            raise StateError(
                f"counts of {self.cells.shape[0]} features ({self.numeric} numeric) "
                f"meet counts of {other.cells.shape[0]} ({other.numeric} numeric); "
                "only counts over one profile can be merged"
            )
        return Counts(
            self.cells + other.cells,
            self.rows + other.rows,
            self.numeric,
            dict(Counter(self.violations) + Counter(other.violations)),
        )

    @classmethod
    def empty(cls, features: int, numeric: int) -> Counts:
        """No rows."""
        return cls(np.zeros((features, CELLS), np.int64), 0, numeric)

    def to_bytes(self) -> bytes:
        """Versioned and checksummed; only cells that hold something are written."""
        features, cells = np.nonzero(self.cells)
        return codec.encode(
            KIND,
            VERSION,
            {
                "features": int(self.cells.shape[0]),
                "numeric": self.numeric,
                "rows": self.rows,
                "filled": np.stack((features, cells, self.cells[features, cells])),
                "violations": [[*key, n] for key, n in sorted(self.violations.items())],
            },
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Counts:
        """Read what `to_bytes` wrote.

        Raises:
            StateError: the bytes are foreign, damaged or of another version.
        """
        payload = codec.decode(data, KIND, VERSION)
        try:
            counts = cls.empty(int(payload["features"]), int(payload["numeric"]))
            features, cells, values = payload["filled"]
            counts.cells[features, cells] = values
            return cls(
                counts.cells,
                int(payload["rows"]),
                counts.numeric,
                {(str(k), str(t)): int(n) for k, t, n in payload["violations"]},
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(f"counts that cannot be read: {error!r}") from error

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
        """Out of the reference's range (numeric) or unseen in it (categorical)."""
        outside = self.cells[:, UNSEEN].copy()
        outside[: self.numeric] += self.cells[: self.numeric, BELOW]
        return outside

    @property
    def finite(self) -> Integers:
        """Values that take part in a distribution: neither missing nor infinite."""
        return self.rows - self.missing - self.infinite

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Whether at least two values came and all of them fell into one cell."""
        finite = self.finite
        inner = self.cells[:, : ABOVE + 1]
        return np.asarray((finite > 1) & (inner.max(axis=1) == finite))

    def constant_beside(self, reference: Counts) -> NDArray[np.bool_]:
        """Features that vary in the reference and stand still here."""
        return np.asarray(self.constant & ~reference.constant)


def merged(parts: Iterable[Counts]) -> Counts:
    """The sum of at least one part."""
    total: Counts | None = None
    for part in parts:
        total = part if total is None else total + part
    if total is None:
        raise StateError("nothing to merge; give at least one part")
    return total


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
        *,
        ring_rows: int = RING_ROWS,
    ) -> None:
        self._schema = schema
        self._grid = grid
        self._intake = Intake(schema, grid.dtype, ring_rows)
        self._tables = tuple(CategoryTable(category) for category in categories)
        self._cells = np.zeros((len(schema.features), CELLS), np.int64)
        self._rows = 0
        self._violations: Counter[tuple[str, str]] = Counter()

    def update(self, request: Mapping[str, NDArray[np.generic]]) -> int:
        """Count one request; returns its number of rows."""
        intake = self._intake
        rows = intake.put_whole(request)
        if rows:
            return rows
        rows = intake.rows_of(request)
        start = 0
        while start < rows:
            room = intake.capacity - intake.filled
            if room == 0:
                self._flush()
                continue
            stop = min(rows, start + room)
            intake.put(request, start, stop)
            start = stop
        return rows

    def _flush(self) -> None:
        intake = self._intake
        if intake.violations:
            self._violations.update(intake.violations)
            intake.violations.clear()
        if intake.filled == 0:
            return
        numeric = self._grid.features
        if numeric:
            self._cells[:numeric] += self._grid.count(intake.numeric[: intake.filled])
        for index, table in enumerate(self._tables):
            self._cells[numeric + index] += table.count(intake.category(index))
        self._rows += intake.filled
        intake.clear()

    def peek(self) -> Counts:
        """The counts so far; the window stays open."""
        self._flush()
        return Counts(
            self._cells.copy(), self._rows, self._grid.features, dict(self._violations)
        )

    def take(self) -> Counts:
        """The counts so far; a new window opens."""
        counts = self.peek()
        self._cells[:] = 0
        self._rows = 0
        self._violations.clear()
        return counts

    def restore(self, counts: Counts) -> None:
        """Go on from counts that were saved.

        Raises:
            StateError: they belong to another profile.
        """
        total = self.peek() + counts
        self._cells = total.cells.astype(np.int64, copy=True)
        self._rows = total.rows
        self._violations = Counter(total.violations)


class SlidingWindow:
    """The last `panes` closed windows, kept apart so that the oldest can leave."""

    def __init__(self, panes: int) -> None:
        if panes < 1:
            raise StateError(f"a sliding window of {panes} panes; use at least 1")
        self._panes: deque[Counts] = deque(maxlen=panes)

    def push(self, counts: Counts) -> Counts:
        """Add the newest window and return the sum of those that remain.

        Counts are kept in 32 bits where they fit, which halves the memory.
        """
        fits = counts.rows < np.iinfo(np.uint32).max
        kept = counts.cells.astype(np.uint32) if fits else counts.cells
        self._panes.append(
            Counts(kept, counts.rows, counts.numeric, dict(counts.violations))  # type: ignore[arg-type]
        )
        return self.total()

    def total(self) -> Counts:
        """The sum of the panes, in 64 bits."""
        return merged(
            Counts(p.cells.astype(np.int64), p.rows, p.numeric, p.violations)
            for p in self._panes
        )

    @property
    def panes(self) -> tuple[Counts, ...]:
        """Oldest first."""
        return tuple(self._panes)
