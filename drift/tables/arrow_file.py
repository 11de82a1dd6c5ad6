"""Parquet, Feather and CSV as numpy arrays: numbers, booleans, text, lists of numbers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.errors import DataError
from drift.tables import import_pyarrow
from drift.tables.csv_source import CsvSource
from drift.tables.layout import Column

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from numpy.typing import NDArray


_MOST_BATCH_VALUES: Final = 1 << 26
"""Limit of values in a batch of a Feather file: half a gigabyte unpacked."""


class ParquetSource:
    """A parquet file, or a folder of them: a data set, read in the order of names.

    Raises:
        DataError: from any method; a file is damaged, or of another schema than the first.
    """

    def __init__(self, path: Path) -> None:
        self._arrow, parquet = import_pyarrow(path, "parquet")
        kinds = self._arrow.types
        texts = (kinds.is_string, kinds.is_binary)
        self._paths = _files_of(path)
        self._files: list[Any] = []
        for file in self._paths:
            with _explained(self._arrow, file, "not parquet that can be read"):
                found = parquet.ParquetFile(file)
                # A long text that many rows share is in memory once.
                text = [
                    f.name for f in found.schema_arrow if any(t(f.type) for t in texts)
                ]
                self._files.append(parquet.ParquetFile(file, read_dictionary=text))
        self.schema: Any = self._files[0].schema_arrow.remove_metadata()
        for file, found in zip(self._paths, self._files, strict=True):
            if found.schema_arrow.remove_metadata() != self.schema:
                raise DataError(
                    str(file), f"its columns differ from those of {self._paths[0].name}"
                )
        self.rows: int | None = sum(file.metadata.num_rows for file in self._files)

    def may_have_nulls(self, name: str) -> bool:
        """Return whether any row group has a missing value, or has no statistics."""
        return any(_has_nulls(file.metadata, name) for file in self._files)

    def batches(self, size: int) -> Iterator[Any]:
        """Yield the rows of each file after the other."""
        for path, file in zip(self._paths, self._files, strict=True):
            with _explained(self._arrow, path, "damaged"):
                yield from file.iter_batches(batch_size=size)


class FeatherSource:
    """A Feather (Arrow IPC) file.

    Raises:
        DataError: from any method; it is damaged, or a batch of it too large to unpack.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrow, ipc = import_pyarrow(path, "ipc")
        with _explained(self._arrow, path, "not Feather that can be read"):
            self._file = ipc.open_file(self._arrow.memory_map(str(path)))
            self.schema: Any = self._file.schema.remove_metadata()
            _, dataset = import_pyarrow(path, "dataset")
            # From the file's metadata alone.
            rows = dataset.dataset(path, format="feather").count_rows()
        self.rows: int | None = rows
        batches = max(self._file.num_record_batches, 1)
        if rows / batches * len(self.schema) > _MOST_BATCH_VALUES:
            raise DataError(
                str(path),
                f"has {rows / batches:,.0f} rows per batch, which are decompressed "
                "at once; write it with a smaller chunksize, like 65536",
            )

    def may_have_nulls(self, name: str) -> bool:
        """Return whether a column has a missing value."""
        with _explained(self._arrow, self._path, "damaged"):
            return any(
                self._file.get_batch(number).column(name).null_count
                for number in range(self._file.num_record_batches)
            )

    def batches(self, size: int) -> Iterator[Any]:
        """Yield the rows of each batch, `size` at a time."""
        with _explained(self._arrow, self._path, "damaged"):
            for number in range(self._file.num_record_batches):
                batch = self._file.get_batch(number)
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)


@contextmanager
def _explained(arrow: Any, path: Path, what: str) -> Generator[None]:
    try:
        yield
    except (OSError, arrow.ArrowException) as error:
        raise DataError(str(path), f"{what}: {error}") from error


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        file
        for file in path.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
    )
    if not found:
        raise DataError(str(path), "found a folder without parquet files")
    return found


def _has_nulls(metadata: Any, name: str) -> bool:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            chunk = row_group.column(index)
            if chunk.path_in_schema.split(".")[0] != name:
                continue
            known = chunk.statistics
            if known is None or not known.has_null_count or known.null_count:
                return True
    return False


class ArrowFile:
    """A file that pyarrow reads; lists have as many numbers in each row.

    Columns of other types are `skipped`; timestamps can still be named as the time.

    Args:
        path: a file, or a folder of parquet files.
        text: columns that are always text.

    Raises:
        DataError: it is damaged or empty, or pyarrow is not installed.
    """

    def __init__(self, path: Path, text: frozenset[str] = frozenset()) -> None:
        self._path = path
        self._text = text
        self._arrow, self._compute = import_pyarrow(path, "compute")
        self._source = _source_of(path, text)
        self.rows = self._source.rows
        if self.rows == 0:
            raise DataError(str(path), "found no rows; want at least 1")
        self._describe()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how a CSV file was read, where something else may be meant."""
        return self._source.notes if isinstance(self._source, CsvSource) else ()

    def read_as(self, datatypes: dict[str, str]) -> None:
        """Read columns as a reference has them, where a file does not have their types.

        CSV does not distinguish a name of digits from a number, and a column without a
        value is of any type.
        """
        if isinstance(self._source, CsvSource):
            text = {name for name, datatype in datatypes.items() if datatype == "BYTES"}
            self._source.read_as(text=frozenset(text))
            self._describe()

    def _describe(self) -> None:
        names = self._source.schema.names
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise DataError(
                str(self._path),
                f"found column {doubled[0]!r} twice; want unique column names",
            )
        columns, skipped = [], []
        for field in self._source.schema:
            column = self._column(field)
            if column is None:
                skipped.append(f"{field.name} ({field.type})")
            else:
                columns.append(column)
        self.columns = tuple(columns)
        self.skipped = tuple(skipped)

    def _column(self, field: Any) -> Column | None:
        kinds = self._arrow.types
        kind = field.type
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        width = 1
        if kinds.is_fixed_size_list(kind):
            kind, width = kind.value_type, kind.list_size
        elif kinds.is_list(kind) or kinds.is_large_list(kind):
            kind, width = kind.value_type, self._width(field.name)
        if field.name in self._text and width == 1:
            return Column(field.name, "BYTES")
        datatype = self._datatype(field.name, kind)
        shape = () if width == 1 else (width,)
        return None if datatype is None else Column(field.name, datatype, shape)

    def _datatype(self, name: str, kind: Any) -> str | None:
        kinds = self._arrow.types
        if kinds.is_boolean(kind):
            return "BYTES" if self._source.may_have_nulls(name) else "BOOL"
        if kinds.is_integer(kind):
            sign = "U" if kinds.is_unsigned_integer(kind) else ""
            return (
                "FP64"
                if self._source.may_have_nulls(name)
                else f"{sign}INT{kind.bit_width}"
            )
        if kinds.is_floating(kind):
            return f"FP{kind.bit_width}"
        if kinds.is_decimal(kind) or kinds.is_null(kind):
            return "FP64"
        text = (kinds.is_string, kinds.is_large_string, kinds.is_binary)
        return "BYTES" if any(is_text(kind) for is_text in text) else None

    def _width(self, name: str) -> int:
        first = next(self._source.batches(1)).column(name)[0]
        return len(first) if first.is_valid else 0

    def chunks(self, size: int) -> Iterator[dict[str, NDArray[np.generic]]]:
        """Rows as columns, about `size` at a time."""
        widths = {column.name: column.width for column in self.columns}
        done = 0
        for batch in self._source.batches(size):
            yield {
                name: self._values(name, column, widths.get(name), done)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            done += batch.num_rows

    def _values(
        self, name: str, array: Any, width: int | None, done: int
    ) -> NDArray[np.generic]:
        """A column's values; of a list column all of each row, `width` None if skipped."""
        kinds = self._arrow.types
        if kinds.is_dictionary(array.type):
            if self._is_object(array.dictionary):
                return _shared(array)
            array = array.dictionary_decode()
        if width is not None and self._is_list(array.type):
            self._check_lengths(name, array, width, done)
            array = array.flatten()
            if width > 1:
                flat: NDArray[np.generic] = array.to_numpy(zero_copy_only=False)
                return flat.reshape(-1, width)
        if kinds.is_null(array.type):
            return np.full(len(array), np.nan)
        if name in self._text or self._is_object(array):
            column = np.empty(len(array), object)
            column[:] = array.to_pylist()
            return column
        if kinds.is_boolean(array.type) and array.null_count:
            # As whole numbers with missing values are: NaN is where there is none.
            array = array.cast(self._arrow.int8())
        if kinds.is_decimal(array.type):
            array = array.cast(self._arrow.float64())
        values: NDArray[np.generic] = array.to_numpy(zero_copy_only=False)
        return values

    def _is_list(self, kind: Any) -> bool:
        kinds = self._arrow.types
        return bool(
            kinds.is_list(kind)
            or kinds.is_large_list(kind)
            or kinds.is_fixed_size_list(kind)
        )

    def _check_lengths(self, name: str, array: Any, width: int, done: int) -> None:
        """Each row's own length: long and short ones may come to the right sum."""
        lengths = self._compute.call_function("list_value_length", [array])
        lengths = self._compute.fill_null(lengths, -1).to_numpy()
        # An empty row shows nothing, even if it is the first and set the width.
        wrong = np.flatnonzero((lengths != width) | (lengths < 1))
        if not wrong.size:
            return
        row, length = done + int(wrong[0]) + 1, int(lengths[wrong[0]])
        found = "no list" if length < 0 else f"a list of {length}"
        want = f"{width} values" if width else "as many values"
        raise DataError(
            f"{self._path}:{name}",
            f"row {row}: found {found}; want {want} in each row, and lists of "
            "different lengths are not read",
        )

    def _is_object(self, array: Any) -> bool:
        kinds = self._arrow.types
        return not (
            kinds.is_boolean(array.type)
            or kinds.is_integer(array.type)
            or kinds.is_floating(array.type)
            or kinds.is_decimal(array.type)
            or kinds.is_timestamp(array.type)
        )


def _shared(array: Any) -> NDArray[np.generic]:
    """Return the values of a dictionary's rows; rows share their text."""
    values = np.array([*array.dictionary.to_pylist(), None], object)
    rows = array.indices.fill_null(len(array.dictionary)).to_numpy(zero_copy_only=False)
    found: NDArray[np.generic] = values[rows]
    return found


def _source_of(
    path: Path, text: frozenset[str]
) -> CsvSource | FeatherSource | ParquetSource:
    ending = path.suffix.lower()
    if ending in {".csv", ".tsv"}:
        return CsvSource(path, text)
    if ending in {".feather", ".arrow"}:
        return FeatherSource(path)
    return ParquetSource(path)
