"""How a CSV file is written: what separates its columns, and its decimal mark."""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from drift.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MISSING: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
DELIMITERS: Final = (",", ";", "\t", "|")
"""In the order in which they are preferred where several would do."""
_SAMPLE_BYTES: Final = 1 << 20
_SAMPLE_ROWS: Final = 1000
_POINT: Final = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
_COMMA: Final = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_WHOLE: Final = re.compile(r"\s*[+-]?\d+\s*")

_Rows = list[list[str]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What separates columns, the decimal mark, and how many columns the header has."""

    delimiter: str
    decimal: str
    width: int


def detect(path: Path) -> Dialect:
    """Return the dialect in which the first rows have as many columns as the header.

    Raises:
        DataError: the file cannot be read or is empty, or has numbers with decimal commas
            beside numbers with decimal points.
    """
    lines = _head(path)
    parsed = {delimiter: _parse(lines, delimiter) for delimiter in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda each: _fit(parsed[each]))
    rows = parsed[delimiter]
    if not rows or not rows[0]:
        raise DataError(str(path), "found nothing; want a header and rows")
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
        raise DataError(str(path), "found UTF-16; want UTF-8: save it so, or use iconv")
    lines = data.decode("utf-8-sig", "replace").splitlines(keepends=True)
    return lines[:-1] if cut and len(lines) > 1 else lines


def _parse(lines: Sequence[str], delimiter: str) -> _Rows:
    """Rows up to the first that cannot be parsed; errors are the reader's to report."""
    rows: _Rows = []
    try:
        for row in islice(csv.reader(lines, delimiter=delimiter), _SAMPLE_ROWS):
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
