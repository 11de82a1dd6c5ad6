"""A golden set: columns, labels and expected answers of a file, and as a model takes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.answer_distribution import row_hashes
from exporter.errors import GoldenDataError, UnusableFileError
from exporter.features.golden import golden_formats
from exporter.features.golden.answer_quality import content
from exporter.features.golden.golden_formats import (
    EXPECTED,
    as_numbers,
    column_of,
    numbers_of,
)
from exporter.system import whole_file
from exporter.triton.tensors import FLOATS, array_dtype, shown_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drift.numerics.normal import Floats, Ints
    from exporter.features.golden.golden_settings import GoldenData
    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec

MAX_BYTES: Final = 256 << 20
MAX_ROWS: Final = 200_000


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
    try:
        raw = whole_file.read(path, MAX_BYTES)
    except (OSError, UnusableFileError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GoldenDataError(str(path), f"cannot be read: {reason}") from None
    found, accuracy = golden_formats.read(raw, settings.chosen_format, str(path))
    columns = _gathered(found, settings, str(path))
    rows = _rows(columns, str(path))
    labels = _pop_column(columns, settings.label, str(path)) if settings.label else None
    if labels is not None and not settings.classes:
        labels = as_numbers(labels)
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
        accuracy,
    )
    _check_values(golden, allow_nan=settings.allow_nan)
    return golden


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
    numbers = as_numbers(column)
    if numbers.dtype.kind == "f":
        column = numbers
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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A golden set for one model: inputs in the model's own datatypes, row by row."""

    golden: GoldenSet
    inputs: Mapping[str, Array]
    datatypes: Mapping[str, str]
    expected: Mapping[str, Array]
    batched: bool
    """True if the model has a batch dimension; else a request carries one row."""

    def request(self, places: Ints) -> dict[str, Array]:
        """The input arrays of these rows."""
        if self.batched:
            return {name: rows[places] for name, rows in self.inputs.items()}
        return {name: rows[int(places[0])] for name, rows in self.inputs.items()}


def prepare(
    golden: GoldenSet, spec: ModelSpec, ignored_input: str | None = None
) -> Prepared:
    """The set as `spec` takes it.

    Raises:
        GoldenDataError: a column is missing, or is not of the input's type or shape:
            the file is another model's, or the model's signature changed.
    """
    inputs: dict[str, Array] = {}
    datatypes: dict[str, str] = {}
    for tensor in spec.inputs:
        column, names = column_of(golden.columns, tensor.name)
        if column is None:
            if tensor.optional or tensor.name == ignored_input:
                continue
            raise golden.problem(
                f"input of {spec.name} version {spec.version} without a column; "
                f"found {sorted(golden.columns)[:20]}",
                name=tensor.name,
            )
        inputs[tensor.name] = _fitted(golden, spec, tensor, column, names)
        datatypes[tensor.name] = tensor.datatype
    expected: dict[str, Array] = {}
    unknown = set(golden.expected)
    for tensor in spec.outputs:
        column, names = column_of(golden.expected, tensor.name)
        if column is not None:
            expected[tensor.name] = _typed(
                golden, tensor, column, names, is_answer=True
            )
            unknown -= set(names)
    if unknown:
        raise golden.problem(
            f"{spec.name} version {spec.version} has no such output; it has "
            f"{sorted(t.name for t in spec.outputs)[:20]}",
            name=f"{EXPECTED}{min(unknown)}",
        )
    return Prepared(golden, inputs, datatypes, expected, spec.max_batch_size > 0)


def _fitted(
    golden: GoldenSet,
    spec: ModelSpec,
    tensor: TensorSpec,
    column: Array,
    names: Sequence[str],
) -> Array:
    declared = tensor.shape[1:] if spec.max_batch_size > 0 else tensor.shape
    shaped = column
    if column.ndim == 1 and declared and all(size in (-1, 1) for size in declared):
        shaped = column.reshape(len(column), *(1 for _ in declared))
    row = shaped.shape[1:]
    fits = len(row) == len(declared) and all(
        want in (-1, size) for size, want in zip(row, declared, strict=True)
    )
    if not fits:
        raise golden.problem(
            f"its rows have the shape {shown_shape(row)}; {spec.name} version "
            f"{spec.version} takes {shown_shape(declared)}",
            name=tensor.name,
        )
    return _typed(golden, tensor, shaped, names)


def _typed(
    golden: GoldenSet,
    tensor: TensorSpec,
    column: Array,
    names: Sequence[str],
    *,
    is_answer: bool = False,
) -> Array:
    """The column in the tensor's datatype; floats of answers as precise as written."""
    if tensor.datatype == "BYTES":
        text = np.empty(column.shape, dtype=object)
        text.ravel()[:] = [content(item) for item in column.ravel().tolist()]
        return text
    numbers = numbers_of(column)
    if isinstance(numbers, int):
        flat = column.reshape(len(column), -1)
        row, part = divmod(numbers, flat.shape[1])
        verb = "answers" if is_answer else "takes"
        raise golden.problem(
            f"found {flat[row, part]!r:.60}; the model {verb} {tensor.datatype}",
            name=names[part if len(names) > 1 else 0],
            row=row,
        )
    if is_answer and tensor.datatype in FLOATS:
        return numbers
    column = numbers
    dtype = array_dtype(tensor.datatype)
    with np.errstate(invalid="ignore", over="ignore"):
        typed = column.astype(dtype)
        # An integer must come out as it went in, a float finite.
        if tensor.datatype in FLOATS:
            bad = np.isinf(typed) & np.isfinite(column)
        else:
            bad = typed.astype(np.float64) != column.astype(np.float64)
    rows = bad.reshape(len(column), -1).any(axis=1)
    if rows.any():
        row = int(np.argmax(rows))
        raise golden.problem(
            f"found {column[row]!r:.60}, which {tensor.datatype} does not have",
            name=tensor.name,
            row=row,
        )
    return typed


NEAR: Final = 0.15
"""Samples no further apart, in standard deviations of every direction, are the same."""
NEAR_OF_FEW: Final = 0.03
"""The same where inputs have less than `FEW` columns that vary: many samples are close."""
FEW: Final = 4
MOST_COMPARED: Final = 20_000
"""Number of samples above which only equal ones are found; also for texts."""
_DIRECTIONS: Final = 8
_CHUNK: Final = 1024
_SEED: Final = 0


def groups_of(inputs: Mapping[str, Array]) -> Ints:
    """(rows,) the same number for samples that are (nearly) the same.

    The first of a group in the order of one random direction leads it: all within `NEAR`
    of it in eight random directions of the standardised inputs are its own. Inputs of
    few numbers may be near without being copies: then it errs towards fewer groups.

    Args:
        inputs: arrays of one or more rows each, all of the same number.
    """
    columns = [array for _, array in sorted(inputs.items())]
    rows = len(columns[0])
    numeric = [a.reshape(rows, -1) for a in columns if a.dtype.kind in "biuf"]
    if rows > MOST_COMPARED or len(numeric) < len(columns):
        return _equal(columns)
    varying = sum(int((a != a[:1]).any(axis=0).sum()) for a in numeric)
    return _near(_projected(numeric), NEAR if varying >= FEW else NEAR_OF_FEW)


def _equal(columns: list[Array]) -> Ints:
    return np.unique(row_hashes(columns), return_inverse=True)[1]


def _projected(columns: list[Array]) -> Floats:
    """(rows, directions) of unit spread; columns that do not vary do not count."""
    rows, rng = len(columns[0]), np.random.default_rng(_SEED)
    found = np.zeros((rows, _DIRECTIONS))
    for column in columns:
        spread = np.nanstd(column.astype(np.float64), axis=0)
        weights = rng.normal(size=(column.shape[1], _DIRECTIONS))
        weights *= np.where(spread > 0, 1.0 / np.where(spread > 0, spread, 1.0), 0)[
            :, None
        ]
        for begin in range(0, rows, _CHUNK):
            part = np.nan_to_num(column[begin : begin + _CHUNK].astype(np.float64))
            found[begin : begin + _CHUNK] += part @ weights
    spread = found.std(axis=0)
    return found / np.where(spread > 0, spread, 1.0)


def _near(places: Floats, apart: float) -> Ints:
    order = np.argsort(places[:, 0], kind="stable")
    ordered = places[order]
    ends = np.searchsorted(ordered[:, 0], ordered[:, 0] + apart, side="right")
    leader = np.full(len(order), -1, np.int64)
    for row, end in enumerate(ends.tolist()):
        if leader[row] >= 0:
            continue
        near = (np.abs(ordered[row:end] - ordered[row]) <= apart).all(axis=1)
        free = leader[row:end]
        free[near & (free < 0)] = row
    groups = np.empty_like(leader)
    groups[order] = leader
    return groups
