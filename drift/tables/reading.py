"""A path to a table: chunks of tensors with the hour of the week they belong to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.column_ring import DTYPES
from drift.errors import DataError
from drift.features import Tensor
from drift.season import hours_of_week
from drift.tables.arrow_file import ArrowFile
from drift.tables.layout import Column, Layout, columns_of, tensors_of
from drift.tables.npz_file import NpzFile
from drift.text_features import require_text, text_numbers, text_source, text_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from drift.features import Schema

    Tensors = Mapping[str, NDArray[np.generic]]

CHUNK_ROWS: Final = 65_536
FORMATS: Final = ("parquet", "csv", "tsv", "feather", "arrow", "npz")
_BLOCK_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 64 << 20
_LATEST: Final = (1e11, 1e14, 1e17)
"""Seconds since 1970 are below the first (until 5138), milliseconds below the second."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Options for reading a file.

    `time` names the column of times, in their order; `categorical` the columns (or
    features) whose numbers are names; `text` those of free text.
    """

    layout: Layout = Layout()  # noqa: RUF009 - frozen
    categorical: frozenset[str] = frozenset()
    time: str | None = None
    text: frozenset[str] = frozenset()


class Table:
    """A data file as tensors.

    Raises:
        DataError: it cannot be read as one; has the place in the file, if known.
    """

    def __init__(self, path: Path, choices: Choices | None = None) -> None:
        self._choices = choices or Choices()
        self.path = path
        self._file = _opened(path, self._choices)
        self.rows = self._file.rows
        """Number of rows; None if the file does not have it."""
        self._units: float | None = None
        columns = [c for c in self._file.columns if c.name != self._choices.time]
        self.tensors, self._sources = tensors_of(
            columns, self._choices.layout, str(path)
        )
        if not self.tensors:
            raise DataError(str(path), "found no column that can be watched")
        self.tensors = tuple(self._as_text(tensor) for tensor in self.tensors)
        unknown = sorted(self._choices.text - set(map(text_source, self.tensors)))
        if unknown:
            raise DataError(
                str(path),
                f"--text names {', '.join(unknown)}, which the file does not have",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how a CSV file was read, where something else may be meant."""
        return self._file.notes

    @property
    def skipped(self) -> tuple[str, ...]:
        """Columns that are not watched: of types that cannot be, or not in the schema."""
        used = {self._choices.time, *chain.from_iterable(self._sources.values())}
        unused = [c.name for c in self._file.columns if c.name not in used]
        every = (*self._file.skipped, *unused)
        return tuple(s for s in every if s.split(" (")[0] != self._choices.time)

    def _as_text(self, tensor: Tensor) -> Tensor:
        if tensor.name not in self._choices.text:
            return tensor
        if problem := require_text(tensor):
            raise DataError(str(self.path), problem)
        made = text_tensor(tensor.name)
        self._sources = {**self._sources, made.name: self._sources[tensor.name]}
        return made

    def schema(self) -> Schema:
        """Return the watched features, by the choices."""
        return self._choices.layout.watched(
            self.tensors, categorical=self._choices.categorical
        )

    def arranged_as(self, schema: Schema) -> Table:
        """The same file, its columns put together as the tensors of another's schema.

        Raises:
            DataError: columns are absent, or arrays have another shape.
        """
        where = str(self.path)
        by_name = {column.name: column for column in self._file.columns}
        chosen = {t.name: t.columns for t in self._choices.layout.tensors}
        held = {tensor.name: _as_in_the_file(tensor) for tensor in schema.tensors}
        self._sources = {
            name: columns_of(tensor, by_name, where, chosen.get(tensor.name, ()))
            for name, tensor in held.items()
        }
        _check_numbers(schema, self._sources, by_name, where)
        self._file.read_as(
            {
                name: held[tensor].datatype
                for tensor, names in self._sources.items()
                for name in names
            }
        )
        self.tensors = schema.tensors
        return self

    def chunks(
        self, report: Callable[[int], None] = lambda _: None
    ) -> Iterator[tuple[Tensors, int | None]]:
        """Tensors of some rows, all of one hour of the week (None without times).

        `report` is called with the number of rows so far.
        """
        done, last = 0, -np.inf
        values = sum(tensor.width for tensor in self.tensors)
        size = max(min(CHUNK_ROWS, _CHUNK_BYTES // max(8 * values, 1)), 1)
        for columns in self._file.chunks(size):
            tensors = self._arranged(columns)
            rows = len(next(iter(columns.values())))
            time = self._choices.time
            if time is None:
                yield tensors, None
            else:
                seconds = self._seconds(columns, time)
                last = self._in_order(seconds, last, done, time)
                yield from _by_hour(tensors, hours_of_week(seconds))
            done += rows
            report(done)

    def _arranged(self, columns: dict[str, NDArray[np.generic]]) -> Tensors:
        found: dict[str, NDArray[np.generic]] = {}
        for tensor in self.tensors:
            parts = [columns[source] for source in self._sources[tensor.name]]
            if text_source(tensor) is None:
                found[tensor.name] = _tensor(tensor, parts)
            else:
                found[tensor.name] = text_numbers(parts[0])
        return found

    def _seconds(
        self, columns: dict[str, NDArray[np.generic]], time: str
    ) -> NDArray[np.float64]:
        column = columns.get(time)
        if column is None:
            raise DataError(
                str(self.path),
                f"--time names {time!r}; the file has {', '.join(list(columns)[:20])}",
            )
        if column.dtype.kind == "M":
            return column.astype("datetime64[us]").astype(np.int64) / 1e6
        if column.dtype.kind in "iuf":
            return column.astype(np.float64) / self._units_per_second(column)
        return np.array([self._parsed(value, time) for value in column])

    def _units_per_second(self, column: NDArray[np.generic]) -> float:
        """Return the number of time units per second, judged by the latest time read first.

        The first row may have 0 for a time that is not known.
        """
        if self._units is None:
            latest = abs(float(np.nan_to_num(column[-1:].astype(np.float64))[0]))
            self._units = 1000.0 ** sum(latest >= bound for bound in _LATEST)
        return self._units

    def _parsed(self, value: object, time: str) -> float:
        try:
            if not isinstance(value, datetime):
                value = datetime.fromisoformat(str(value))
        except ValueError:
            raise DataError(
                f"{self.path}:{time}",
                f"found {str(value)[:40]!r}; want a time as 2026-01-31T13:00:00Z or in "
                "seconds since 1970",
            ) from None
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()

    def _in_order(
        self, seconds: NDArray[np.float64], last: float, done: int, time: str
    ) -> float:
        steps = np.diff(seconds, prepend=last)
        bad = np.flatnonzero(~(steps >= 0))
        if bad.size:
            raise DataError(
                f"{self.path}:{time}",
                f"row {done + int(bad[0]) + 1} is missing or older than the row before "
                "it; sort the file by time",
            )
        return float(seconds[-1])


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder in the order of names, in hexadecimal.

    Raises:
        DataError: it cannot be read.
    """
    found = hashlib.sha256()
    files = (
        sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
    )
    try:
        for each in files:
            with each.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    found.update(block)
    except OSError as error:
        raise DataError(str(path), error.strerror or str(error)) from error
    return found.hexdigest()


def _opened(path: Path, choices: Choices) -> ArrowFile | NpzFile:
    if path.is_dir():
        return ArrowFile(path, choices.categorical)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise DataError(
            str(path),
            f"found the ending {path.suffix or 'none'!r}; want one of "
            f"{', '.join('.' + name for name in FORMATS)}, or a folder of parquet files",
        )
    if not path.is_file():
        raise DataError(str(path), "no such file")
    if kind == "npz":
        return NpzFile(path)
    return ArrowFile(path, choices.categorical)


def _as_in_the_file(tensor: Tensor) -> Tensor:
    """Return the column of texts of a tensor of their numbers; others as they are."""
    source = text_source(tensor)
    return tensor if source is None else Tensor(source, "BYTES")


def _check_numbers(
    schema: Schema,
    sources: Mapping[str, Sequence[str]],
    by_name: Mapping[str, Column],
    where: str,
) -> None:
    numeric = {f.tensor for f in schema.features if f.kind == "numeric"}
    bad = [
        name
        for tensor in numeric - {t.name for t in schema.tensors if text_source(t)}
        for name in sources[tensor]
        if by_name[name].datatype == "BYTES"
    ]
    if bad:
        raise DataError(
            where,
            f"columns {', '.join(bad[:5])} contain text; the reference has numbers",
        )


def _tensor(
    tensor: Tensor, columns: Sequence[NDArray[np.generic]]
) -> NDArray[np.generic]:
    joined = columns[0] if len(columns) == 1 else np.column_stack(columns)
    shaped = joined.reshape(len(joined), *tensor.row_shape)
    dtype = np.dtype(DTYPES.get(tensor.datatype, "f8"))
    if shaped.dtype == dtype:
        return shaped
    if dtype.kind == "O" or shaped.dtype.kind == "O":
        return shaped.astype(object)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = shaped.astype(dtype)
    # A whole number does not hold a fraction, a missing value or a number out of range.
    return cast if dtype.kind == "f" or np.array_equal(cast, shaped) else shaped


def _by_hour(
    tensors: Tensors, hours: NDArray[np.int64]
) -> Iterator[tuple[Tensors, int | None]]:
    edges = np.flatnonzero(np.diff(hours)) + 1
    for start, stop in zip(
        np.concatenate(([0], edges)),
        np.concatenate((edges, [hours.size])),
        strict=True,
    ):
        part = {name: values[start:stop] for name, values in tensors.items()}
        yield part, int(hours[start])
