"""Files to columns: npz, CSV, Parquet, and JSON as Triton and perf_analyzer take it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import operator
import sys
import zipfile
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from exporter.errors import GoldenDataError, ProtocolError
from exporter.triton.tensors import array_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from exporter.triton.protocol_types import Array

Format = Literal["npz", "csv", "parquet", "json"]
EXPECTED: Final = "expected:"
"""Prefix of a column of expected answers; the output's name follows."""
ACCURACY: Final = "recorded:accuracy"
"""A column of one number that `golden record` writes."""

_MOST_UNPACKED: Final = 1 << 30


def read(raw: bytes, form: Format, file: str) -> tuple[dict[str, Array], float | None]:
    """The columns of a file's content by name, and the accuracy written with them.

    Raises:
        GoldenDataError: what is wrong first, with row and field where there are any.
    """
    readers: dict[Format, Callable[[bytes, str], dict[str, Array]]] = {
        "npz": _npz,
        "csv": _csv,
        "parquet": _parquet,
        "json": _json,
    }
    try:
        columns = readers[form](raw, file)
        recorded = columns.pop(ACCURACY, None)
        return columns, None if recorded is None else _accuracy(recorded, file)
    except GoldenDataError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a file makes a library raise
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise GoldenDataError(
            file, f"is not a readable {form} file: {detail}"
        ) from None


def _accuracy(recorded: Array, file: str) -> float:
    accuracy = float(recorded.ravel()[0])
    if 0.0 < accuracy <= 1.0:
        return accuracy
    raise GoldenDataError(
        file, f"found the recorded accuracy {accuracy:g}; want more than 0, up to 1"
    )


def _npz(raw: bytes, file: str) -> dict[str, Array]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _MOST_UNPACKED:
        reason = f"unpacks to {unpacked} bytes; at most {_MOST_UNPACKED} are read"
        raise GoldenDataError(file, reason)
    # Pickles are programs; text belongs in arrays of kind S or U.
    with np.load(io.BytesIO(raw), allow_pickle=False) as data:
        return {name: np.atleast_1d(data[name]) for name in data.files}


def _csv(raw: bytes, file: str) -> dict[str, Array]:
    text = io.StringIO(raw.decode("utf-8-sig"), newline="")
    lines = csv.reader(text, strict=True)
    try:
        header = next(lines, [])
        rows = [row for row in lines if row]
    except csv.Error as error:
        raise GoldenDataError(file, str(error), row=lines.line_num) from None
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise GoldenDataError(file, "appears twice in the header", name=twice)
    for number, row in enumerate(rows):
        if len(row) != len(header):
            reason = f"has {len(row)} fields; the header has {len(header)}"
            raise GoldenDataError(file, reason, row=number)
    return {
        name: _text_column([row[place] for row in rows], name, file)
        for place, name in enumerate(header)
    }


def _text_column(values: Sequence[str], name: str, file: str) -> Array:
    """As it is written: 007 may be a number or a text; the model's datatype decides."""
    missing = [row for row, value in enumerate(values) if not value.strip()]
    if missing:
        raise GoldenDataError(file, "is empty", name=name, row=missing[0])
    return np.array(values, dtype=object)


def numbers_of(column: Array) -> Array | int:
    """Return a column as numbers, or the position of the first value that is not one."""
    if column.dtype.kind in "biuf":
        return column
    flat = column.ravel().tolist()
    for kind in (_integer, float):
        try:
            found = np.array([kind(value) for value in flat])
        except (ValueError, TypeError, OverflowError):
            continue
        if found.dtype.kind != "O":
            return found.reshape(column.shape)
    return next(n for n, value in enumerate(flat) if not _is_number(value))


def _integer(value: Any) -> int:
    found = int(value)
    # A written number is an integer; a decimal of a Parquet file may be a fraction.
    if not isinstance(value, str | bytes) and found != value:
        raise ValueError(value)
    return found


def as_numbers(column: Array) -> Array:
    """Return a column of text as numbers, if all of it are."""
    found = numbers_of(column)
    return column if isinstance(found, int) else found


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def column_of(
    columns: Mapping[str, Array], tensor: str
) -> tuple[Array | None, list[str]]:
    """The column of a tensor and its names in the file, one for each part.

    It may be in parts: `name[0]`, `name[1]` ... or `name_0`, `name_1` ... are vectors.
    """
    if tensor in columns:
        return columns[tensor], [tensor]
    for begin, end in (("[", "]"), ("_", "")):
        named = (f"{tensor}{begin}{number}{end}" for number in itertools.count())
        parts = list(itertools.takewhile(columns.__contains__, named))
        if parts:
            return np.stack([columns[part] for part in parts], 1), parts
    return None, []


def _parquet(raw: bytes, file: str) -> dict[str, Array]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and heavy
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        reason = f"Parquet needs pyarrow: run `{sys.executable} -m pip install pyarrow`"
        raise GoldenDataError(file, reason) from None
    table = parquet.read_table(pa.BufferReader(raw))
    return {
        name: _column_of_values(table.column(name).to_pylist(), name, file)
        for name in table.column_names
    }


def _column_of_values(values: Sequence[Any], name: str, file: str) -> Array:
    """Numbers, text or vectors of one length, each value of one row."""
    for row, value in enumerate(values):
        if value is None:
            raise GoldenDataError(file, "is empty", name=name, row=row)
    if any(isinstance(value, str | bytes) for value in values):
        return np.array(values, dtype=object)
    shapes = [np.shape(value) for value in values]
    for row, shape in enumerate(shapes):
        if shape != shapes[0]:
            reason = f"has the shape {list(shape)}; row 0 has {list(shapes[0])}"
            raise GoldenDataError(file, reason, name=name, row=row)
    return np.array(values)


def _json(raw: bytes, file: str) -> dict[str, Array]:
    document = json.loads(raw)
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        return _perf_analyzer(document, file)
    requests = document if isinstance(document, list) else [document]
    parts: dict[str, list[Array]] = {}
    for number, request in enumerate(requests):
        if not isinstance(request, dict) or not isinstance(request.get("inputs"), list):
            reason = "want an inference request with `inputs`, or a list of them"
            raise GoldenDataError(file, reason, row=number)
        for prefix, key in (("", "inputs"), (EXPECTED, "outputs")):
            for tensor in request.get(key) or ():
                # An output without data only requests that output.
                if key == "outputs" and "data" not in tensor:
                    continue
                name, array = _tensor(tensor, file, number)
                parts.setdefault(prefix + name, []).append(array)
    return _concatenated(parts, file)


def _tensor(tensor: Any, file: str, number: int) -> tuple[str, Array]:
    name = str(tensor.get("name", "")) if isinstance(tensor, dict) else ""
    try:
        shape = [operator.index(size) for size in tensor["shape"]]
        datatype = str(tensor["datatype"])
        array = _values(np.array(tensor["data"], dtype=object).ravel(), datatype)
        return name, array.reshape(shape)
    except _NotInDatatypeError as error:
        reason = str(error)
    except (KeyError, TypeError, ValueError, OverflowError, ProtocolError) as error:
        reason = f"is not a tensor with name, datatype, shape and data: {error}"
    raise GoldenDataError(file, reason, name=name or None, row=number)


class _NotInDatatypeError(Exception):
    """A value that the tensor's datatype does not have."""

    def __init__(self, value: Any, datatype: str, takes: str) -> None:
        super().__init__(
            f"found {value!r:.60}; {datatype} takes {takes}: correct the value, or the "
            "datatype"
        )


def _values(given: Array, datatype: str) -> Array:
    """Return JSON values (N,) in their datatype, each as it is written."""
    dtype = array_dtype(datatype)
    values, numbers = given.tolist(), {int, float}
    if dtype.kind == "O":
        kinds, takes = {str, int, float}, "text"
    elif dtype.kind == "b":
        kinds, takes = {bool, int}, "true and false"
    elif dtype.kind == "f":
        kinds, takes = numbers, f"numbers up to {float(np.finfo(dtype.name).max):g}"
    else:
        limits = np.iinfo(dtype.name)
        kinds, takes = numbers, f"whole numbers from {limits.min} to {limits.max}"
    if not set(map(type, values)) <= kinds:
        wrong = next(value for value in values if type(value) not in kinds)
        raise _NotInDatatypeError(wrong, datatype, takes)
    if dtype.kind == "O":
        array = np.empty(len(values), dtype=object)
        array[:] = [str(value).encode() for value in values]
        return array
    if dtype.kind in "iu":
        limits = np.iinfo(dtype.name)
        # Also NaN, whose remainder is NaN.
        bad = (v for v in values if v % 1 or not limits.min <= v <= limits.max)
    elif dtype.kind == "b":
        bad = (v for v in values if v not in {0, 1})
    else:
        with np.errstate(over="ignore"):
            infinite = np.isinf(given.astype(np.float64).astype(dtype))
        bad = (v for v in given[infinite].tolist() if abs(v) != math.inf)
    for value in bad:
        raise _NotInDatatypeError(value, datatype, takes)
    return np.array(values, dtype=dtype)


def _concatenated(parts: Mapping[str, Sequence[Array]], file: str) -> dict[str, Array]:
    columns = {}
    for name, arrays in parts.items():
        for number, array in enumerate(arrays):
            if array.ndim == 0 or array.shape[1:] != arrays[0].shape[1:]:
                reason = (
                    f"has the shape {list(array.shape)}; the first dimension is rows, "
                    f"and the others are those of request 0, {list(arrays[0].shape)}"
                )
                raise GoldenDataError(file, reason, name=name, row=number)
        columns[name] = np.concatenate(arrays)
    return columns


def _perf_analyzer(document: Mapping[str, Any], file: str) -> dict[str, Array]:
    """`{"data": [{INPUT: values}], "validation_data": [{OUTPUT: values}]}`."""
    columns: dict[str, Array] = {}
    for prefix, key in (("", "data"), (EXPECTED, "validation_data")):
        steps = document.get(key) or []
        names = list(steps[0]) if steps and isinstance(steps[0], dict) else []
        for name in names:
            values = []
            for row, step in enumerate(steps):
                if not isinstance(step, dict) or name not in step:
                    raise GoldenDataError(file, "is missing", name=name, row=row)
                values.append(_step_value(step[name]))
            columns[prefix + name] = _column_of_values(values, name, file)
    return columns


def _step_value(value: Any) -> Any:
    if isinstance(value, dict) and "content" in value:
        shape = value.get("shape")
        content = np.asarray(value["content"])
        return content.reshape(shape).tolist() if shape else content.tolist()
    return value
