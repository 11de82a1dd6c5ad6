"""Build a reference profile from requests or chunks of a file, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.alarm_calibration import measured
from drift.block_sums import MAX_BLOCKS, BlockSums, HourSums, Rescoring
from drift.categories import (
    MAX_CATEGORIES,
    MAX_KNOWN,
    CategoryTable,
    build_category_grid,
    canonical,
)
from drift.cell_choice import build_numeric_grid
from drift.column_ring import Intake
from drift.dispersion import MIN_BLOCKS, Dispersion
from drift.errors import ProfileError
from drift.grid import CELLS, feature_slices
from drift.joint import CATEGORY
from drift.joint_counting import JointCounter
from drift.joint_fitting import fit_joint
from drift.projection import project
from drift.reference import LEVELS, Profile, Provenance
from drift.season import HOURS, Season
from drift.window import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from drift.categories import CategoryGrid
    from drift.features import Schema
    from drift.grid import NumericGrid
    from drift.joint import JointModel
    from drift.projection import Projection, Summary

SAMPLE_ROWS: Final = 100_000
CHUNK_ROWS: Final = 4096
FEWEST_CHUNK_ROWS: Final = 256
CHUNK_VALUES: Final = 1 << 18
FIRST_BLOCK_ROWS: Final = 4
MAX_DISTINCT: Final = 1 << 16

_WIDE: Final = frozenset({"FP64", "INT32", "INT64", "UINT32", "UINT64"})


class ProfileBuilder:
    """Reads the reference once, in the order of time, and builds its profile.

    The first `sample_rows` rows, up to the end of a chunk, choose cells and quantiles,
    and the scores and coarse bins that dependence is measured in; all rows are counted.
    Blocks for the overdispersion double in size whenever there are `MAX_BLOCKS` of them.
    Of a block the sums are kept, 128 bytes a feature, not the counts.
    """

    def __init__(
        self, schema: Schema, *, sample_rows: int = SAMPLE_ROWS, ordered: bool = True
    ) -> None:
        self._schema = schema
        self._ordered = ordered
        self._sample_rows = sample_rows
        fitting = CHUNK_VALUES // max(len(schema.features), 1)
        rows = min(max(fitting, FEWEST_CHUNK_ROWS), CHUNK_ROWS)
        self._intake = Intake(schema, np.dtype(np.float64), rows)
        self._pending: list[tuple[_Chunk, int | None]] = []
        self._pending_rows = 0
        self._counting: _Counting | None = None
        self._hour: int | None = None

    def rows_of(self, request: Mapping[str, NDArray[np.generic]]) -> int:
        """The rows of a request; 0 if some of its tensors are not as declared."""
        return self._intake.rows_of(request) if self._intake.fits(request) else 0

    def add(
        self, request: Mapping[str, NDArray[np.generic]], *, hour: int | None = None
    ) -> None:
        """Add rows, oldest first. `hour` is the hour of the week they came in, 0..167.

        Raises:
            ProfileError: `hour` is out of range.
        """
        if hour is not None and not 0 <= hour < HOURS:
            raise ProfileError(
                [f"found hour of the week {hour}; want 0 to {HOURS - 1}"]
            )
        if hour != self._hour:
            self._drain()
            self._hour = hour
        self._intake.copy(request, self._drain)

    def _drain(self) -> None:
        if self._intake.filled == 0:
            return
        chunk = _Chunk.from_intake(self._intake)
        if self._counting is not None:
            self._counting.add(chunk, self._hour)
            return
        self._pending.append((chunk, self._hour))
        self._pending_rows += chunk.rows
        if self._pending_rows >= self._sample_rows:
            self._start()

    def _start(self) -> _Counting:
        sample = [chunk for chunk, _ in self._pending]
        counting = _Counting(self._schema, sample)
        for chunk, hour in self._pending:
            counting.add(chunk, hour)
        self._pending.clear()
        self._counting = counting
        return counting

    def build(self, provenance: Provenance | None = None) -> Profile:
        """The profile of all rows so far.

        Raises:
            ProfileError: there were no rows.
        """
        self._drain()
        if self._counting is None and not self._pending:
            raise ProfileError(["found no rows; a reference needs at least one"])
        counting = self._counting or self._start()
        return counting.profile(ordered=self._ordered, provenance=provenance)


def fit(
    schema: Schema,
    data: Mapping[str, NDArray[np.generic]],
    *,
    ordered: bool = True,
    provenance: Provenance | None = None,
) -> Profile:
    """The profile of data that is all in memory: tensors by name, (rows, *row_shape).

    Example:
        >>> import numpy as np
        >>> from drift.features import Schema, Tensor
        >>> rows = np.random.default_rng(0).normal(size=(1000, 2)).astype("f4")
        >>> profile = fit(Schema.from_tensors([Tensor("x", "FP32", (2,))]), {"x": rows})
        >>> profile.rows, profile.schema.names, profile.caveats
        (1000, ('x[0]', 'x[1]'), ())

    Raises:
        ProfileError: there are no rows.
    """
    builder = ProfileBuilder(schema, ordered=ordered)
    builder.add(data)
    return builder.build(provenance)


class _Chunk:
    """Some rows, out of the ring: a float matrix and one column a category."""

    def __init__(
        self,
        numeric: NDArray[np.floating],
        categories: Sequence[NDArray[np.integer] | list[object]],
    ) -> None:
        self.numeric = numeric
        self.categories = categories
        self.rows = numeric.shape[0]

    @classmethod
    def from_intake(cls, intake: Intake) -> _Chunk:
        columns = [intake.category(i).copy() for i in range(intake.categories)]
        chunk = cls(intake.numeric[: intake.filled].copy(), columns)
        intake.clear()
        return chunk

    def part(self, start: int, stop: int) -> _Chunk:
        return _Chunk(
            self.numeric[start:stop], [column[start:stop] for column in self.categories]
        )


class _Counting:
    """Counts rows, and sums them in blocks, once the cells are chosen."""

    def __init__(self, schema: Schema, sample: list[_Chunk]) -> None:
        self._schema = schema
        rows = np.concatenate([chunk.numeric for chunk in sample])
        wide = _is_wide(schema)
        self.grid: NumericGrid = build_numeric_grid(rows, wide=wide)
        self.quantiles = _quantiles(rows)
        columns = range(len(schema.features) - schema.numeric)
        self.categories = tuple(
            _category_grid([chunk.categories[i] for chunk in sample]) for i in columns
        )
        self._tables = tuple(CategoryTable(grid) for grid in self.categories)
        self.joint, self.no_joint, known = self._correlations(rows, sample)
        self._batches = None if self.joint is None else JointCounter(self.joint, known)
        self._features = len(schema.features) + (self.joint is not None)
        self._block_rows = FIRST_BLOCK_ROWS
        self._blocks = BlockSums(self._features)
        self._open = False
        self._total = np.zeros((self._features, CELLS), np.int64)
        self._projection = self._of_sample(sample, known)
        self._hours = HourSums(self._features)

    def _correlations(
        self, rows: NDArray[np.floating], sample: list[_Chunk]
    ) -> tuple[JointModel | None, str, list[int]]:
        """Return the model, the reason if there is none, and the batches' cells."""
        cells = [
            np.concatenate([table.cells_of(chunk.categories[i]) for chunk in sample])
            for i, table in enumerate(self._tables)
        ]
        found = fit_joint(rows, cells, self.quantiles, self.categories)
        return (None, found, []) if isinstance(found, str) else (found[0], "", found[1])

    def _of_sample(self, sample: list[_Chunk], batches: Sequence[int]) -> Projection:
        cells = np.zeros_like(self._total)
        for chunk in sample:
            cells[: len(self._schema.features)] += self._cells(chunk)
        if self.joint is not None:
            cells[-1] = np.bincount(batches, minlength=CELLS)
        rows = sum(chunk.rows for chunk in sample)
        counts = Counts(cells, rows, self._schema.numeric)
        return project(counts, frozenset(self.grid.cuts))

    def _cells(self, chunk: _Chunk) -> NDArray[np.int64]:
        # The ring's dtype, as traffic will be counted.
        with np.errstate(over="ignore"):
            numeric: NDArray[np.floating] = chunk.numeric.astype(self.grid.dtype)
        parts = [self.grid.count(numeric)] if self.grid.features else []
        parts += [
            table.count(column)[None]
            for table, column in zip(self._tables, chunk.categories, strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, CELLS), np.int64)

    def _joint_cells(self, chunk: _Chunk) -> NDArray[np.int64]:
        """The batches that some rows complete, (1, CELLS); none where nothing is compared."""
        if self._batches is None:
            return np.zeros((0, CELLS), np.int64)
        cells = [
            table.cells_of(column)
            for table, column in zip(self._tables, chunk.categories, strict=True)
        ]
        return self._batches.add(chunk.numeric, cells, thin=False)[None]

    def add(self, chunk: _Chunk, hour: int | None) -> None:
        start = 0
        while start < chunk.rows:
            held = self._blocks.rows[-1] if self._open else 0
            stop = min(chunk.rows, start + self._block_rows - held)
            part = chunk.part(start, stop)
            cells = np.concatenate((self._cells(part), self._joint_cells(part)))
            self._add(cells, stop - start, hour)
            start = stop

    def _add(self, cells: NDArray[np.int64], rows: int, hour: int | None) -> None:
        self._total += cells
        summary = self._projection.summarise(Counts(cells, rows, self._schema.numeric))
        if not self._open:
            self._blocks.begin()
            self._open = True
        self._blocks.add(summary, hour)
        self._hours.add(summary, hour)
        if self._blocks.rows[-1] >= self._block_rows:
            self._open = False
            if len(self._blocks.rows) >= MAX_BLOCKS:
                self._blocks.halve()
                self._block_rows *= 2

    def profile(self, *, ordered: bool, provenance: Provenance | None) -> Profile:
        numeric = self._schema.numeric
        total = Counts(self._total.copy(), sum(self._blocks.rows), numeric)
        # The last block may be short; it would count as if it were whole.
        whole = len(self._blocks.rows) - self._open
        final = project(total, frozenset(self.grid.cuts))
        rescoring = Rescoring.between(self._projection, final, total.cells)
        season = self._hours.season(rescoring) if ordered else None
        enough = ordered and whole >= MIN_BLOCKS
        return Profile(
            self._schema,
            self.grid,
            self.categories + (CATEGORY,) * (self.joint is not None),
            total,
            self.quantiles,
            self._dispersion(total, whole, season, final, rescoring)
            if enough
            else Dispersion.independent(self._features),
            whole,
            self._block_rows,
            ordered,
            season,
            provenance or Provenance(),
            weekdays=self._hours.weekdays(),
            joint=self.joint,
            no_joint=self.no_joint,
        )

    def _dispersion(
        self,
        total: Counts,
        whole: int,
        season: Season | None,
        final: Projection,
        rescoring: Rescoring,
    ) -> Dispersion:
        found = []
        for part in feature_slices(self._features):
            own = season and season.part(part)
            new, rescored = final.part(part), rescoring.part(part)
            # Bins are the profile's, of all rows; those of the blocks are of the sample.
            projection = replace(
                self._projection.part(part), location=new.location, scale=new.scale
            )
            blocks = [
                self._residual(rescored.of(self._blocks.of(index, part)), index, own)
                for index in range(whole)
            ]
            found.append(measured(blocks, projection, total.cells[part]))
        spread = Dispersion.joined(found)
        same = (final.bins == self._projection.bins).all(axis=1)
        return replace(
            spread, shown=np.where(same[:, None, None], spread.shown, np.nan)
        )

    def _residual(self, block: Summary, index: int, season: Season | None) -> Summary:
        if season is None or block.rows == 0:
            return block
        hours = {
            h: rows for h, rows in self._blocks.hours[index].items() if h is not None
        }
        return season.removed_from_own(block, hours)


def _is_wide(schema: Schema) -> bool:
    numeric = {f.tensor for f in schema.features if f.kind == "numeric"}
    return any(t.datatype in _WIDE for t in schema.tensors if t.name in numeric)


def _quantiles(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    found = np.zeros((rows.shape[1], len(LEVELS)))
    for index, column in enumerate(rows.T):
        finite = column[np.isfinite(column)]
        if finite.size:
            found[index] = np.quantile(finite, LEVELS)
    return found


def _category_grid(columns: list[NDArray[np.integer] | list[object]]) -> CategoryGrid:
    counts: Counter[str] = Counter()
    complete = True
    for column in columns:
        raw = Counter(column if isinstance(column, list) else column.tolist())
        for value, count in raw.items():
            name = canonical(value)
            if name is not None:
                counts[name] += count
        if len(counts) > MAX_DISTINCT:
            complete = False
            counts = Counter(dict(counts.most_common(MAX_CATEGORIES + MAX_KNOWN)))
    return build_category_grid(counts, complete=complete)
