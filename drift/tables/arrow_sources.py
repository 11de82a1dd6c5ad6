"""Parquet and Feather files as batches of Arrow columns, one batch in memory at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from drift.errors import DataError
from drift.tables.pyarrow_import import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

_MOST_BATCH_VALUES: Final = 1 << 26
"""Of a Feather file, which is unpacked a batch at a time: half a gigabyte."""


class ArrowSource(Protocol):
    """A file, or several of one schema, as Arrow columns."""

    rows: int | None
    """How many, where the file says so beforehand."""

    @property
    def schema(self) -> Any:
        """Names and types of the columns."""
        ...

    def may_have_nulls(self, name: str) -> bool:
        """Return whether a column may have missing values."""
        ...

    def batches(self, size: int) -> Iterator[Any]:
        """Yield at most `size` rows at a time.

        Raises:
            DataError: the file is damaged; names it.
        """
        ...


class ParquetSource:
    """A parquet file, or a folder of them: a data set, read in the order of names.

    Raises:
        DataError: from any method; a file is damaged, or of another schema than the first.
    """

    def __init__(self, path: Path) -> None:
        self._arrow, parquet = import_pyarrow(path, "parquet")
        self._paths = _files_of(path)
        self._files: list[Any] = []
        for file in self._paths:
            with _explained(self._arrow, file, "not parquet that can be read"):
                found = parquet.ParquetFile(file)
                # A long text that many rows share is in memory once.
                text = [f.name for f in found.schema_arrow if self._is_text(f.type)]
                self._files.append(parquet.ParquetFile(file, read_dictionary=text))
        self.schema: Any = self._files[0].schema_arrow.remove_metadata()
        for file, found in zip(self._paths, self._files, strict=True):
            if found.schema_arrow.remove_metadata() != self.schema:
                raise DataError(
                    str(file), f"has other columns than {self._paths[0].name}"
                )
        self.rows: int | None = sum(file.metadata.num_rows for file in self._files)

    def _is_text(self, kind: Any) -> bool:
        kinds = self._arrow.types
        return bool(kinds.is_string(kind) or kinds.is_binary(kind))

    def may_have_nulls(self, name: str) -> bool:
        """Return whether any row group has a missing value, or does not say."""
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
                f"has {rows / batches:,.0f} rows in a batch, which are unpacked at once; "
                "write it with a smaller chunksize, like 65536",
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
