"""CSV as batches of Arrow columns: numbers and text, with the row of an error."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from drift.errors import DataError
from drift.tables import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path


MISSING: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
DELIMITERS: Final = (",", ";", "\t", "|")
"""Column separators in order of preference."""
_SAMPLE_BYTES: Final = 1 << 20
_DIALECT_ROWS: Final = 1000
_POINT: Final = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
_COMMA: Final = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_WHOLE: Final = re.compile(r"\s*[+-]?\d+\s*")

_Rows = list[list[str]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The column separator, the decimal mark, and the number of columns."""

    delimiter: str
    decimal: str
    width: int


def detect(path: Path) -> Dialect:
    """Return the dialect in which the first rows have as many columns as the header.

    Raises:
        DataError: the file cannot be read or is empty, or has numbers with decimal commas
            next to numbers with decimal points.
    """
    lines = _head(path)
    parsed = {delimiter: _parse(lines, delimiter) for delimiter in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda each: _fit(parsed[each]))
    rows = parsed[delimiter]
    if not rows or not rows[0]:
        raise DataError(str(path), "the file is empty; want a header and rows")
    decimal = "." if delimiter == "," else _decimal(path, rows)
    return Dialect(delimiter, decimal, len(rows[0]))


def _head(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_SAMPLE_BYTES)
            cut = bool(file.read(1))
    except OSError as error:
        raise DataError(str(path), error.strerror or str(error)) from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            str(path),
            "found UTF-16; want UTF-8: save the file as UTF-8 or convert it with iconv",
        )
    lines = data.decode("utf-8-sig", "replace").splitlines(keepends=True)
    return lines[:-1] if cut and len(lines) > 1 else lines


def _parse(lines: Sequence[str], delimiter: str) -> _Rows:
    """Rows up to the first that cannot be parsed; errors are the reader's to report."""
    rows: _Rows = []
    try:
        for row in islice(csv.reader(lines, delimiter=delimiter), _DIALECT_ROWS):
            rows.append(row)
    except csv.Error:
        pass
    return rows


def _fit(rows: _Rows) -> tuple[float, int]:
    """Return the share of rows as wide as the header, and how wide that is."""
    width = len(rows[0]) if rows else 0
    if width < 2:  # noqa: PLR2004 - it separates nothing
        return -1.0, 0
    body = [row for row in rows[1:] if row]
    return sum(len(row) == width for row in body) / max(len(body), 1), width


def _decimal(path: Path, rows: _Rows) -> str:
    """Return the decimal mark of the numbers, where commas do not separate columns."""
    commas = points = ""
    for name, *cells in zip(*rows, strict=False):
        values = [cell for cell in cells if cell not in MISSING]
        if any(map(_COMMA.fullmatch, values)) and all(
            _COMMA.fullmatch(value) or _WHOLE.fullmatch(value) for value in values
        ):
            commas = commas or name
        if any(map(_POINT.fullmatch, values)):
            points = points or name
    if commas and points:
        raise DataError(
            str(path),
            f"found decimal commas in column {commas!r} and decimal points in column "
            f"{points!r}; want one of them",
        )
    return "," if commas else "."


_BLOCK_BYTES: Final = 16 << 20
"""Read and parsed at a time; a row has to fit."""
_SAMPLE_ROWS: Final = 10_000
_WRONG_WIDTH: Final = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_NO_NUMBER: Final = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to \w+: invalid value '(.*)'",
    re.DOTALL,
)
_NO_TEXT: Final = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error .*UTF8"
)


class CsvSource:
    """A CSV file (UTF-8) with a header; its delimiter and decimal mark are detected.

    A column is of numbers (float64) if its first `_SAMPLE_ROWS` values are numbers; else it
    is text. Fields in `MISSING` are missing values.

    Args:
        path: the file.
        text: columns that are always text.

    Raises:
        DataError: from any method, naming the file and where possible row and column. Rows
            are counted from 1, the header; they are lines where no cell has a line break.
    """

    def __init__(self, path: Path, text: frozenset[str]) -> None:
        self._path = path
        self._arrow, self._csv = import_pyarrow(path, "csv")
        _, self._compute = import_pyarrow(path, "compute")
        self._missing = self._arrow.array(MISSING)
        self.texts_missing: Counter[tuple[str, str]] = Counter()
        """Rows of a column of text by what they have for a missing value; "" left out."""
        self.dialect = detect(path)
        with self._explained():
            self._names: list[str] = self._reader({}).schema.names
        self._require_names()
        self._types = self._decided(text)
        self.rows: int | None = None

    @property
    def schema(self) -> Any:
        """Names and types of the columns."""
        return self._arrow.schema(list(self._types.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the rows so far were read, where something else may be meant."""
        found = self.dialect
        mark = ", decimal commas" if found.decimal == "," else ""
        usual = found.delimiter == "," and not mark
        return (
            *([f"columns separated by {found.delimiter!r}{mark}"] * (not usual)),
            *(
                f"{column}: {text!r} ({rows:,} rows) is counted as missing; in a live "
                "request this text is a category"
                for (column, text), rows in self.texts_missing.items()
            ),
        )

    def may_have_nulls(self, name: str) -> bool:  # noqa: ARG002 - any CSV column may
        """Return whether a column may have missing values."""
        return True

    def read_as(self, *, text: frozenset[str]) -> None:
        """Read these columns as text from now on."""
        self._types |= dict.fromkeys(text & self._types.keys(), self._arrow.string())

    def batches(self, size: int) -> Iterator[Any]:
        """Yield `size` rows at a time, fewer at the end of a block."""
        last = None
        for block in self._blocks(self._types):
            self._count_missing(block)
            block = self._without_missing(block)  # noqa: PLW2901 - the same rows
            for start in range(0, block.num_rows, size):
                last = block.slice(start, size)
                yield last
        if last is not None:
            self._require_closed(last)

    def _decided(self, text: frozenset[str]) -> dict[str, Any]:
        """Return the type of each column, from its first rows that have a value.

        A column without a single value is of numbers.
        """
        found = {name: self._arrow.string() for name in self._names if name in text}
        rows = 0
        for block in self._blocks(dict.fromkeys(self._names, self._arrow.string())):
            rows += block.num_rows
            known = self._without_missing(block)
            for name in [name for name in self._names if name not in found]:
                values = known.column(name).drop_null()
                if len(values):
                    found[name] = self._type_of(values.slice(0, _SAMPLE_ROWS))
            if rows and len(found) == len(self._names):
                break
        if not rows:
            raise DataError(
                str(self._path), "found no rows below the header; want at least 1"
            )
        return {name: found.get(name, self._arrow.float64()) for name in self._names}

    def _type_of(self, values: Any) -> Any:
        found = [value.strip() for value in values.to_pylist()]
        if self.dialect.decimal == ",":
            # Casts know no other mark than the point.
            found = [value.replace(",", ".") for value in found]
        try:
            self._arrow.array(found).cast(self._arrow.float64())
        except self._arrow.ArrowInvalid:
            return self._arrow.string()
        return self._arrow.float64()

    def _texts(self, block: Any) -> list[str]:
        return [f.name for f in block.schema if self._arrow.types.is_string(f.type)]

    def _count_missing(self, block: Any) -> None:
        for name in self._texts(block):
            column = block.column(name)
            among = self._compute.is_in(column, value_set=self._missing)
            for found in column.filter(among).value_counts().to_pylist():
                if found["values"]:
                    self.texts_missing[name, found["values"]] += found["counts"]

    def _without_missing(self, block: Any) -> Any:
        columns = dict(zip(block.schema.names, block.columns, strict=True))
        for name in self._texts(block):
            among = self._compute.is_in(columns[name], value_set=self._missing)
            null = self._arrow.scalar(None, columns[name].type)
            columns[name] = self._compute.if_else(among, null, columns[name])
        return self._arrow.RecordBatch.from_arrays(
            list(columns.values()), schema=block.schema
        )

    def _blocks(self, types: dict[str, Any]) -> Iterator[Any]:
        with self._explained():
            yield from self._reader(types)

    def _reader(self, types: dict[str, Any]) -> Any:
        csv = self._csv
        return csv.open_csv(
            self._path,
            read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                newlines_in_values=True,
                # In a single column an empty line is a missing value.
                ignore_empty_lines=self.dialect.width > 1,
            ),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=list(MISSING),
                # Texts become null here, where they are counted.
                strings_can_be_null=False,
                decimal_point=self.dialect.decimal,
            ),
        )

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path}:1", f"found bytes that are not UTF-8 ({error.reason})"
            ) from error
        except (OSError, self._arrow.ArrowException) as error:
            raise self._problem(str(error)) from error

    def _problem(self, said: str) -> DataError:
        if match := _WRONG_WIDTH.search(said):
            row, want, found = match.groups()
            return DataError(
                f"{self._path}:{row}",
                f"found {found} fields; want {want}, as in the header",
            )
        if match := _NO_NUMBER.search(said):
            name, row, value = self._names[int(match[1])], match[2], match[3]
            return DataError(
                f"{self._path}:{row}:{name}",
                f"found {value[:40]!r} in a column of numbers; want a number, or name the "
                f"column with --categorical {name}",
            )
        if match := _NO_TEXT.search(said):
            name, row = self._names[int(match[1])], match[2]
            place = f"{row}:{name}" if row else name
            return DataError(
                f"{self._path}:{place}", "found bytes that are not UTF-8; want text"
            )
        if "straddles two block boundaries" in said or "straddling" in said:
            return DataError(
                str(self._path),
                f"found a row of more than {_BLOCK_BYTES >> 20} MiB, or a quote that is not "
                "closed; want shorter cells",
            )
        if "Empty CSV" in said:
            return DataError(
                str(self._path), "found no rows below the header; want at least 1"
            )
        return DataError(str(self._path), f"not readable CSV: {said}")

    def _require_names(self) -> None:
        names = self._names
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled or not all(names):
            what = (
                f"column {doubled[0]!r} twice" if doubled else "a column without name"
            )
            raise DataError(
                f"{self._path}:1", f"found {what}; want a header with unique names"
            )

    def _require_closed(self, last: Any) -> None:
        """Raise where the file ends within quotes: the cell would be all the rest of it."""
        value = last.column(last.num_columns - 1)[-1].as_py()
        if not isinstance(value, str) or "\n" not in value:
            return
        with self._path.open("rb") as file:
            file.seek(max(self._path.stat().st_size - 64, 0))
            end = file.read().rstrip(b"\r\n")
        if not end.endswith(b'"'):
            raise DataError(
                str(self._path),
                f"unclosed quote in the last row: {value[:40]!r}",
            )
