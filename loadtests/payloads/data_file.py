"""Requests from a file: npz, parquet, or perf_analyzer's JSON input.

Every format becomes the same: arrays by tensor name whose first axis counts samples.
Those named as an input are sent; those named as an output are the correct answers.

perf_analyzer's `data` has one object a request, `validation_data` the answers. A tensor is
a list of values, or {"content": [...], "shape": [...]}, or {"b64": "..."}. Streams of
sequences (`data` as a list of lists) are sent one after the other.
https://github.com/triton-inference-server/perf_analyzer, docs/input_data.md
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from exporter.errors import GoldenDataError, ProtocolError
from exporter.features.golden import golden_formats
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import array_dtype, decode, shown_shape
from loadtests import json_file
from loadtests.errors import PlanError
from loadtests.payloads.bodies import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec

    Columns = Mapping[str, Array]
    Read = Callable[[Path, ModelSpec], Iterator[Row]]

MAX_SAMPLES: Final = 1_000_000


def rows_of(path: Path, spec: ModelSpec, *, batch: int = 1) -> Iterator[Row]:
    """Return a row for each request, in the file's order; models with batches get `batch` samples.

    Raises:
        PlanError: the file cannot be read, or does not fit the model.
    """
    json_file.require_size(path)
    if batch > 1 and not spec.max_batch_size:
        reason = f"found batch {batch}; {spec.name} takes no batches: leave it out"
        raise PlanError(reason, str(path))
    match path.suffix.lower():
        case ".npz":
            return _batches(path, spec, columns_of(path, "npz"), batch)
        case ".parquet":
            return _batches(
                path, spec, _stacked(columns_of(path, "parquet"), spec), batch
            )
        case ".json" if batch > 1:
            raise PlanError(
                f"found batch {batch}; want 1: each object of perf_analyzer's `data` is "
                "a request",
                str(path),
            )
        case ".json":
            return _perf_analyzer_rows(path, spec)
        case suffix:
            raise PlanError(
                f"found the ending {suffix!r}; want .npz, .parquet or perf_analyzer's .json",
                str(path),
            )


def columns_of(path: Path, form: Literal["npz", "parquet"]) -> Columns:
    """Return the arrays of a file, by name.

    Raises:
        PlanError: it cannot be read, or is of another format.
    """
    try:
        return golden_formats.read(path.read_bytes(), form, str(path))[0]
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", str(path)) from None
    except GoldenDataError as error:
        raise PlanError(str(error)) from None


def _stacked(columns: Columns, spec: ModelSpec) -> Columns:
    """Return feature columns joined as the model's one input, where they fit that."""
    inputs, outputs = ({t.name for t in part} for part in (spec.inputs, spec.outputs))
    if inputs & columns.keys() or len(spec.inputs) != 1:
        return columns
    kept = {name: array for name, array in columns.items() if name in outputs}
    features = [array for name, array in columns.items() if name not in outputs]
    if not features or any(a.ndim != 1 or a.dtype.kind not in "biuf" for a in features):
        return columns
    return {spec.inputs[0].name: np.stack(features, axis=1), **kept}


def _batches(
    path: Path, spec: ModelSpec, columns: Columns, batch: int
) -> Iterator[Row]:
    source = str(path)
    samples = _checked(source, spec, columns)
    inputs = {tensor.name for tensor in spec.inputs}
    outputs = {tensor.name for tensor in spec.outputs}
    if batch > samples:
        raise PlanError(f"found {samples} samples; a batch needs {batch}", source)
    for start in range(0, samples - batch + 1, batch):
        chosen = slice(start, start + batch) if spec.max_batch_size else start
        yield Row(
            {n: np.asarray(columns[n][chosen]) for n in columns if n in inputs},
            {
                n: np.asarray(columns[n][chosen])
                for n in columns
                if n in outputs - inputs
            },
        )


def _checked(source: str, spec: ModelSpec, columns: Columns) -> int:
    """Return the number of samples, the same for each tensor."""
    names = sorted(columns)
    for tensor in spec.inputs:
        if tensor.name in columns:
            require_fit(source, spec, tensor, columns[tensor.name].shape[1:])
            require_dtype(source, tensor, columns[tensor.name])
        elif not tensor.optional:
            raise PlanError(
                f"found {names}; {spec.name} needs the input {tensor.name!r}", source
            )
    known = {tensor.name for tensor in (*spec.inputs, *spec.outputs)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PlanError(
            f"found {unknown}; {spec.name} has the tensors {sorted(known)}", source
        )
    counts = {len(columns[name]) if columns[name].ndim else 0 for name in names}
    samples = counts.pop()
    if counts or not 1 <= samples <= MAX_SAMPLES:
        raise PlanError(
            f"found {sorted({samples, *counts})} samples; want the same number of "
            f"each tensor, 1 to {MAX_SAMPLES}",
            source,
        )
    return samples


def require_fit(
    source: str, spec: ModelSpec, tensor: TensorSpec, shape: tuple[int, ...]
) -> None:
    """Require that one sample has the shape that the model declares.

    Raises:
        PlanError: it has not.
    """
    declared = tensor.shape[1:] if spec.max_batch_size else tensor.shape
    fits = len(shape) == len(declared) and all(
        want in (-1, size) for size, want in zip(shape, declared, strict=True)
    )
    if not fits:
        raise PlanError(
            f"found samples of the shape {shown_shape(shape)} for {tensor.name!r}; "
            f"{spec.name} takes {shown_shape(declared)}"
            + (" and a batch dimension before it" if spec.max_batch_size else ""),
            source,
        )


def require_dtype(source: str, tensor: TensorSpec, array: Array) -> None:
    """Require the model's datatype, or values that can be converted without loss.

    Raises:
        PlanError: text for numbers, fractions for integers, or the like.
    """
    try:
        wanted = array_dtype(tensor.datatype)
    except ProtocolError as error:
        raise PlanError(str(error), source) from None
    kind = array.dtype.kind
    text = kind in "OSU"
    if tensor.datatype == "BYTES":
        fits = text
    elif text:
        fits = False
    else:
        fits = np.can_cast(array.dtype, wanted, "same_kind") or (
            kind in "iu" and wanted.kind in "iuf"
        )
    if not fits:
        raise PlanError(
            f"found {array.dtype} for {tensor.name!r}; want {tensor.datatype}",
            source,
        )
    if wanted.kind in "iuf" and kind in "iuf":
        _require_range(source, tensor, array, wanted)


def _require_range(
    source: str, tensor: TensorSpec, array: Array, wanted: np.dtype[np.generic]
) -> None:
    low: float
    high: float
    if wanted.kind == "f":
        high = float(np.finfo(wanted.name).max)
        low = -high
    else:
        low, high = np.iinfo(wanted.name).min, np.iinfo(wanted.name).max
    finite = array[np.isfinite(array)]
    for found in (finite.min(initial=0).item(), finite.max(initial=0).item()):
        if not low <= found <= high:
            raise PlanError(
                f"found {found} for {tensor.name!r}; want {tensor.datatype}, from "
                f"{low} to {high}",
                source,
            )


def _perf_analyzer_rows(path: Path, spec: ModelSpec) -> Iterator[Row]:
    """One row an object of `data`.

    Raises:
        PlanError: the file is not of this form, or does not fit the model.
    """
    source = str(path)
    document = json_file.read(path)
    data = _steps(document, "data", source)
    answers = _steps(document, "validation_data", source)
    if not data:
        raise PlanError('found no "data"; want a list of objects by input name', source)
    if answers and len(answers) != len(data):
        raise PlanError(
            f"found {len(data)} entries in data and {len(answers)} in "
            "validation_data; want the same number",
            source,
        )
    for place, step in enumerate(data):
        where = f"{source}: data[{place}]"
        expected = answers[place] if answers else {}
        yield Row(
            _tensors(where, spec, spec.inputs, step, needed=True),
            _tensors(where, spec, spec.outputs, expected, needed=False),
        )


def _steps(document: Any, key: str, source: str) -> list[dict[str, Any]]:
    steps = document.get(key, []) if isinstance(document, dict) else None
    if not isinstance(steps, list):
        raise PlanError(f'found no list under "{key}"', source)
    flat = [s for step in steps for s in (step if isinstance(step, list) else [step])]
    if not all(isinstance(step, dict) for step in flat):
        raise PlanError(f'found under "{key}" an entry that is not an object', source)
    return flat


def _tensors(
    source: str,
    spec: ModelSpec,
    tensors: tuple[TensorSpec, ...],
    step: dict[str, Any],
    *,
    needed: bool,
) -> dict[str, Array]:
    known = {tensor.name: tensor for tensor in tensors}
    unknown = sorted(step.keys() - known.keys())
    if unknown:
        raise PlanError(f"found {unknown}; {spec.name} has {sorted(known)}", source)
    missing = [t.name for t in tensors if t.name not in step and not t.optional]
    if needed and missing:
        raise PlanError(f"found no {missing}, which {spec.name} needs", source)
    return {name: _tensor(source, spec, known[name], step[name]) for name in step}


def _tensor(source: str, spec: ModelSpec, tensor: TensorSpec, given: Any) -> Array:
    content, shape = given, None
    if isinstance(given, dict):
        content, shape = given.get("content"), given.get("shape")
        if "b64" in given:
            return _of_bytes(source, spec, tensor, given["b64"], shape)
    if not isinstance(content, list):
        raise PlanError(f"found {tensor.name!r} without a list of values", source)
    text = tensor.datatype == "BYTES"
    try:
        array = np.array(content, object if text else None).ravel()
    except ValueError as error:
        raise PlanError(
            f"{tensor.name!r} has lists of different lengths: {error}", source
        ) from None
    # numpy makes 1 of true beside a number, and of a number in a text that many zeros.
    given = np.array(content, object).ravel().tolist()
    strange = [v for v in given if (type(v) is not str if text else type(v) is bool)]
    if strange and tensor.datatype != "BOOL":
        raise PlanError(
            f"found {strange[0]!r:.60} for {tensor.name!r}; want {tensor.datatype}",
            source,
        )
    require_dtype(source, tensor, array)
    return _shaped(source, spec, tensor, array, shape)


def _of_bytes(
    source: str, spec: ModelSpec, tensor: TensorSpec, text: Any, shape: Any
) -> Array:
    try:
        raw = base64.b64decode(text, validate=True)
        wire = 2 if tensor.datatype == "BF16" else array_dtype(tensor.datatype).itemsize
        count = 1 if tensor.datatype == "BYTES" else len(raw) // wire
        array = decode(OutputTensor(tensor.name, tensor.datatype, (count,), raw))
    except (binascii.Error, TypeError, ValueError, ProtocolError) as error:
        raise PlanError(
            f"{tensor.name!r} is not valid base64: {error}", source
        ) from None
    return _shaped(source, spec, tensor, array, shape)


def _shaped(
    source: str, spec: ModelSpec, tensor: TensorSpec, array: Array, shape: Any
) -> Array:
    """Return it in the given or declared shape; one open dimension fits the values."""
    declared = tensor.shape[1:] if spec.max_batch_size else tensor.shape
    wanted = declared if shape is None else shape
    try:
        whole = array.reshape(tuple(int(size) for size in wanted))
    except (TypeError, ValueError):
        raise PlanError(
            f"found {array.size} values for {tensor.name!r} of shape {list(wanted)}",
            source,
        ) from None
    require_fit(source, spec, tensor, whole.shape)
    return whole[np.newaxis] if spec.max_batch_size else whole
