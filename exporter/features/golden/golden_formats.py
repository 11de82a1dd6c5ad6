"""Files to columns: npz, CSV, Parquet, and JSON as Triton and perf_analyzer take it."""

from __future__ import annotations

import csv
import io
import json
import re
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

# pixels[0], pixels[1] ... or pixels_0, pixels_1 ...: one tensor over many columns.
_PART: Final = re.compile(r"(?P<name>.*\D)(?:\[(?P<index>\d+)\]|_(?P<number>\d+))")
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
        accuracy = columns.pop(ACCURACY, None)
        return columns, None if accuracy is None else float(accuracy.ravel()[0])
    except GoldenDataError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a file makes a library raise
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise GoldenDataError(
            file, f"is not a readable {form} file: {detail}"
        ) from None


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
    columns = {
        name: _column_of_text([row[place] for row in rows], name, file)
        for place, name in enumerate(header)
    }
    return _joined(columns)


def _column_of_text(values: Sequence[str], name: str, file: str) -> Array:
    """Numbers where every value is one, else text; a gap in numbers is an error."""
    numbers = [_number(value) for value in values]
    missing = [row for row, value in enumerate(values) if not value.strip()]
    wrong = [row for row, number in enumerate(numbers) if number is None]
    if missing:
        raise GoldenDataError(file, "is empty", name=name, row=missing[0])
    if wrong and len(wrong) == len(values):
        return np.array(values, dtype=object)
    # A few words among numbers are errors in the file.
    if wrong:
        reason = f"found {values[wrong[0]]!r:.60}; the other rows hold numbers"
        raise GoldenDataError(file, reason, name=name, row=wrong[0])
    if all(isinstance(number, int) for number in numbers):
        return np.array(numbers)
    return np.array(numbers, np.float64)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _joined(columns: Mapping[str, Array]) -> dict[str, Array]:
    """`name[0]`, `name[1]` ... as one column `name` of vectors."""
    parts: dict[str, dict[int, str]] = {}
    for name in columns:
        match = _PART.fullmatch(name)
        if match:
            index = int(match["index"] or match["number"])
            parts.setdefault(match["name"], {})[index] = name
    joined = dict(columns)
    for name, places in parts.items():
        if name in columns or sorted(places) != list(range(len(places))):
            continue
        joined[name] = np.stack([joined.pop(places[i]) for i in range(len(places))], 1)
    return joined


def _parquet(raw: bytes, file: str) -> dict[str, Array]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and heavy
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        reason = "Parquet needs pyarrow: install tritonwatch[parquet]"
        raise GoldenDataError(file, reason) from None
    table = parquet.read_table(pa.BufferReader(raw))
    columns = {
        name: _column_of_values(table.column(name).to_pylist(), name, file)
        for name in table.column_names
    }
    return _joined(columns)


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
        shape = [int(size) for size in tensor["shape"]]
        dtype = array_dtype(str(tensor["datatype"]))
        data = tensor["data"]
        if dtype.kind == "O":
            flat = np.array(data, dtype=object).ravel()
            array = np.empty(flat.size, dtype=object)
            array[:] = [str(item).encode() for item in flat]
        else:
            array = np.array(data, dtype=dtype).ravel()
        return name, array.reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError, ProtocolError) as error:
        reason = f"is not a tensor with name, datatype, shape and data: {error}"
        raise GoldenDataError(file, reason, name=name or None, row=number) from None


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
