"""CSV, read strictly: a header, as many fields in every row, numbers that are numbers."""

from __future__ import annotations

import csv
import math
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from drift.errors import DataError
from drift.tables.layout import Column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Columns = dict[str, NDArray[np.generic]]
    from _csv import Reader as _Reader

MISSING: Final = frozenset(("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"))
SAMPLE_ROWS: Final = 10_000


class CsvFile:
    """A CSV file (RFC 4180, UTF-8) with a header.

    A column is of numbers (FP64) if everything in its first `SAMPLE_ROWS` rows is one;
    `MISSING` fields are missing values in any column.

    Raises:
        DataError: from any method, naming the file and where possible line and column.
    """

    def __init__(self, path: Path, text: frozenset[str] = frozenset()) -> None:
        self._path = path
        self._text = text
        self.rows: int | None = None
        with self._open() as lines:
            reader = csv.reader(lines, strict=True)
            self._names = self._header(reader)
            sample = [fields for _, fields in islice(self._rows(reader), SAMPLE_ROWS)]
        if not sample:
            raise DataError(
                str(path), "found no rows below the header; want at least 1"
            )
        self._numbers = tuple(
            name not in text and all(_is_number(row[i]) for row in sample)
            for i, name in enumerate(self._names)
        )
        self.columns = tuple(
            Column(name, "FP64" if numbers else "BYTES")
            for name, numbers in zip(self._names, self._numbers, strict=True)
        )
        self.skipped: tuple[str, ...] = ()

    def _open(self) -> _Lines:
        return _Lines(self._path)

    def _header(self, reader: _Reader) -> list[str]:
        try:
            names = next(reader, [])
        except csv.Error as error:
            raise DataError(f"{self._path}:1", str(error)) from error
        if not names:
            raise DataError(str(self._path), "found nothing; want a header and rows")
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled or not all(names):
            what = (
                f"column {doubled[0]!r} twice" if doubled else "a column without name"
            )
            raise DataError(
                f"{self._path}:1", f"found {what}; want a header of different names"
            )
        return names

    def _rows(self, reader: _Reader) -> Iterator[tuple[int, list[str]]]:
        width = len(self._names)
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DataError(
                    f"{self._path}:{reader.line_num}", str(error)
                ) from error
            if fields is None:
                return
            if not fields and width > 1:
                continue
            fields = fields or [""]
            if len(fields) != width:
                raise DataError(
                    f"{self._path}:{reader.line_num}",
                    f"found {len(fields)} fields; want {width}, as in the header",
                )
            yield reader.line_num, fields

    def chunks(self, size: int) -> Iterator[Columns]:
        """Rows as columns, `size` at a time."""
        with self._open() as lines:
            reader = csv.reader(lines, strict=True)
            next(reader)
            rows = self._rows(reader)
            while found := list(islice(rows, size)):
                numbers = [line for line, _ in found]
                columns = zip(*(fields for _, fields in found), strict=True)
                yield {
                    name: self._column(i, list(column), numbers)
                    for i, (name, column) in enumerate(
                        zip(self._names, columns, strict=True)
                    )
                }

    def _column(
        self, index: int, fields: list[str], lines: list[int]
    ) -> NDArray[np.generic]:
        if not self._numbers[index]:
            column = np.empty(len(fields), object)
            column[:] = [None if field in MISSING else field for field in fields]
            return column
        try:
            return np.array(
                [math.nan if f in MISSING else _number(f) for f in fields], np.float64
            )
        except ValueError:
            bad = next(i for i, field in enumerate(fields) if not _is_number(field))
            raise DataError(
                f"{self._path}:{lines[bad]}:{self._names[index]}",
                f"found {fields[bad][:40]!r} in a column of numbers; want a number, or "
                f"name the column with --categorical {self._names[index]}",
            ) from None


class _Lines:
    """The file's lines; bytes that are no text are an error that says where."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        try:
            self._file = path.open(encoding="utf-8-sig", newline="")
        except OSError as error:
            raise DataError(str(path), error.strerror or str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._number += 1
        try:
            return next(self._file)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path}:{self._number}",
                f"found bytes that are not UTF-8 ({error.reason}); want text",
            ) from error


def _number(field: str) -> float:
    # float() takes Python's own 1_000, which no other reader of CSV does.
    if "_" in field:
        raise ValueError(field)
    return float(field)


def _is_number(field: str) -> bool:
    if field in MISSING:
        return True
    try:
        _number(field)
    except ValueError:
        return False
    return True
