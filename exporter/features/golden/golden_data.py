"""A golden set in memory: columns, labels and expected answers, each row a sample."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.errors import GoldenDataError
from exporter.features.golden import golden_formats

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from exporter.features.golden.golden_settings import GoldenData
    from exporter.triton.protocol_types import Array

MAX_BYTES: Final = 256 << 20
MAX_ROWS: Final = 200_000
EXPECTED: Final = "expected:"
"""Prefix of a column of expected answers; the output's name follows."""


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """The content of a golden file. Arrays have one row for each sample."""

    file: str
    name: str
    sha256: str
    rows: int
    columns: Mapping[str, Array] = field(default_factory=dict)
    labels: Array | None = None
    expected: Mapping[str, Array] = field(default_factory=dict)
    """Expected answers by output name."""
    accuracy: float | None = None
    """Accuracy of the model that the answers were recorded from."""

    def problem(
        self, reason: str, *, name: str | None = None, row: int | None = None
    ) -> GoldenDataError:
        """An error that names this file, the field and the row."""
        return GoldenDataError(self.file, reason, name=name, row=row)


def read(settings: GoldenData) -> GoldenSet:
    """The golden set of a file.

    Raises:
        GoldenDataError: the first thing that is wrong with it, with row and field.
    """
    path = settings.file
    raw = _bytes(path)
    found = golden_formats.read(raw, settings.chosen_format, str(path))
    columns = _gathered(found.columns, settings, str(path))
    rows = _rows(columns, str(path))
    labels = _pop_column(columns, settings.label, str(path)) if settings.label else None
    expected: dict[str, Array] = {}
    for name in [name for name in columns if name.startswith(EXPECTED)]:
        expected[name.removeprefix(EXPECTED)] = columns.pop(name)
    for output, column in settings.expected.items():
        expected[output] = _pop_column(columns, column, str(path))
    golden = GoldenSet(
        str(path),
        settings.label_of_set,
        hashlib.sha256(raw).hexdigest(),
        rows,
        columns,
        labels,
        expected,
        found.accuracy,
    )
    _check_values(golden, allow_nan=settings.allow_nan)
    return golden


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise GoldenDataError(str(path), reason) from None
    if len(raw) > MAX_BYTES:
        reason = f"is larger than the {MAX_BYTES} bytes that are read"
        raise GoldenDataError(str(path), reason)
    return raw


def _gathered(
    columns: dict[str, Array], settings: GoldenData, file: str
) -> dict[str, Array]:
    """Columns that make up one tensor put together, as the config names them."""
    gathered = dict(columns)
    for name, parts in settings.columns.items():
        of_parts = [_pop_column(gathered, part, file) for part in parts]
        for part, column in zip(parts, of_parts, strict=True):
            if column.shape != of_parts[0].shape:
                reason = (
                    f"has the shape {list(column.shape)}; {parts[0]!r}, with which it "
                    f"makes up {name!r}, has {list(of_parts[0].shape)}"
                )
                raise GoldenDataError(file, reason, name=part)
        gathered[name] = (
            of_parts[0] if len(of_parts) == 1 else np.stack(of_parts, axis=1)
        )
    return gathered


def _pop_column(columns: dict[str, Array], name: str, file: str) -> Array:
    try:
        return columns.pop(name)
    except KeyError:
        shown = ", ".join(sorted(columns)[:20])
        reason = f"no such column; found {shown or 'none'}"
        raise GoldenDataError(file, reason, name=name) from None


def _rows(columns: Mapping[str, Array], file: str) -> int:
    lengths = {name: len(column) for name, column in columns.items()}
    if not lengths or not max(lengths.values()):
        raise GoldenDataError(file, "holds no rows")
    most = max(lengths.values())
    for name, length in lengths.items():
        if length != most:
            reason = f"has {length} rows where another column has {most}"
            raise GoldenDataError(file, reason, name=name)
    if most > MAX_ROWS:
        raise GoldenDataError(file, f"has {most} rows; the maximum is {MAX_ROWS}")
    return most


def _check_values(golden: GoldenSet, *, allow_nan: bool) -> None:
    if golden.labels is not None:
        _refuse_missing(golden, "label", golden.labels)
    if allow_nan:
        return
    for name, column in golden.columns.items():
        _refuse_missing(golden, name, column)
    for name, column in golden.expected.items():
        _refuse_missing(golden, f"{EXPECTED}{name}", column)


def _refuse_missing(golden: GoldenSet, name: str, column: Array) -> None:
    if column.dtype.kind == "f":
        bad = ~np.isfinite(column.reshape(len(column), -1)).all(axis=1)
    elif column.dtype.kind == "O":
        bad = np.array(
            [value is None for value in column.reshape(len(column), -1)[:, 0]]
        )
    else:
        return
    if bad.any():
        row = int(np.argmax(bad))
        raise golden.problem(
            f"found {column[row]!r:.60}; want a value in every row"
            + ("" if name == "label" else " (allow_nan takes NaN as it is)"),
            name=name,
            row=row,
        )
