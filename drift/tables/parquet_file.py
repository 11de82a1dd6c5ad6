"""Parquet by pyarrow, which comes with the extra `parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from drift.errors import DataError
from drift.tables.layout import Column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray


class ParquetFile:
    """A parquet file: numbers, booleans, text, and lists of as many numbers in each row.

    Columns of other types are `skipped`; timestamps can still be named as the time.

    Raises:
        DataError: it is damaged or empty, or pyarrow is not installed.
    """

    def __init__(self, path: Path, text: frozenset[str] = frozenset()) -> None:
        self._path = path
        self._text = text
        self._arrow, parquet = _pyarrow(path)
        try:
            self._file: Any = parquet.ParquetFile(path)
        except (OSError, self._arrow.ArrowException) as error:
            raise DataError(
                str(path), f"not parquet that can be read: {error}"
            ) from error
        self.rows: int = self._file.metadata.num_rows
        if self.rows == 0:
            raise DataError(str(path), "found no rows; want at least 1")
        columns, skipped = [], []
        for field in self._file.schema_arrow:
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
        return None if datatype is None else Column(field.name, datatype, width)

    def _datatype(self, name: str, kind: Any) -> str | None:
        kinds = self._arrow.types
        if kinds.is_boolean(kind):
            return "BYTES" if self._has_nulls(name) else "BOOL"
        if kinds.is_integer(kind):
            sign = "U" if kinds.is_unsigned_integer(kind) else ""
            return "FP64" if self._has_nulls(name) else f"{sign}INT{kind.bit_width}"
        if kinds.is_floating(kind):
            return f"FP{kind.bit_width}"
        if kinds.is_decimal(kind):
            return "FP64"
        text = (kinds.is_string, kinds.is_large_string, kinds.is_binary)
        return "BYTES" if any(is_text(kind) for is_text in text) else None

    def _has_nulls(self, name: str) -> bool:
        metadata = self._file.metadata
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

    def _width(self, name: str) -> int:
        batch = next(self._file.iter_batches(batch_size=1, columns=[name]))
        first = batch.column(0)[0]
        return len(first) if first.is_valid else 0

    def chunks(self, size: int) -> Iterator[dict[str, NDArray[np.generic]]]:
        """Rows as columns, about `size` at a time."""
        names = [field.name for field in self._file.schema_arrow]
        widths = {column.name: column.width for column in self.columns}
        done = 0
        try:
            for batch in self._file.iter_batches(batch_size=size):
                yield {
                    name: self._values(name, batch.column(i), widths.get(name), done)
                    for i, name in enumerate(names)
                }
                done += batch.num_rows
        except (OSError, self._arrow.ArrowException) as error:
            raise DataError(str(self._path), f"damaged: {error}") from error

    def _values(
        self, name: str, array: Any, width: int | None, done: int
    ) -> NDArray[np.generic]:
        """A column's values; of a list column all of each row, `width` None if skipped."""
        kinds = self._arrow.types
        if kinds.is_dictionary(array.type):
            array = array.dictionary_decode()
        if width is not None and self._is_list(array.type):
            self._check_lengths(name, array, width, done)
            array = array.flatten()
            if width > 1:
                flat: NDArray[np.generic] = array.to_numpy(zero_copy_only=False)
                return flat.reshape(-1, width)
        if name in self._text or self._is_object(array):
            column = np.empty(len(array), object)
            column[:] = array.to_pylist()
            return column
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
        from pyarrow import compute  # noqa: PLC0415 - an extra, and heavy

        lengths = compute.call_function("list_value_length", [array])
        lengths = compute.fill_null(lengths, -1).to_numpy()
        # A row of nothing says nothing, even if it is the first and set the width.
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
        if kinds.is_boolean(array.type):
            return bool(array.null_count)
        return not (
            kinds.is_integer(array.type)
            or kinds.is_floating(array.type)
            or kinds.is_decimal(array.type)
            or kinds.is_timestamp(array.type)
        )


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and heavy
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise DataError(
            str(path),
            "reading parquet takes pyarrow, which is not installed: "
            "pip install 'tritonwatch[parquet]'",
        ) from error
    return pa, parquet
