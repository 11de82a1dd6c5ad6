"""Requests from a file: npz, parquet, or perf_analyzer's JSON input.

Every format becomes the same: arrays by tensor name whose first axis counts samples.
Those named as an input are sent; those named as an output are the correct answers.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests import json_file
from loadtests.errors import PlanError
from loadtests.payloads import perf_analyzer_json
from loadtests.payloads.bodies import Row
from loadtests.payloads.sample_checks import require_dtype, require_fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from exporter.triton.protocol_types import Array, ModelSpec

    Columns = Mapping[str, Array]
    Read = Callable[[Path, ModelSpec], Iterator[Row]]

MAX_SAMPLES: Final = 1_000_000


def rows_of(path: Path, spec: ModelSpec, *, batch: int = 1) -> Iterator[Row]:
    """Return a row for each request, in the file's order; models with batches get `batch` samples.

    Raises:
        PlanError: the file cannot be read, or does not fit the model.
    """
    json_file.require_size(path)
    match path.suffix.lower():
        case ".npz":
            return _batches(path, spec, read_npz(path), batch)
        case ".parquet":
            return _batches(path, spec, _parquet(path, spec), batch)
        case ".json":
            return perf_analyzer_json.rows_of(path, spec)
        case suffix:
            raise PlanError(
                f"found the ending {suffix!r}; want .npz, .parquet or perf_analyzer's .json",
                str(path),
            )


def read_npz(path: Path) -> Columns:
    """Return the arrays of an npz file, by name.

    Raises:
        PlanError: it cannot be read, or is not an npz file.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise PlanError(f"is not an npz file: {error}", str(path)) from None


def _parquet(path: Path, spec: ModelSpec) -> Columns:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise PlanError(
            "needs pyarrow: pip install 'tritonwatch[parquet]'", str(path)
        ) from None
    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise PlanError(f"is not a parquet file: {error}", str(path)) from None
    columns = {name: _column(table[name].to_pylist()) for name in table.column_names}
    return _stacked(columns, spec)


def _column(values: list[object]) -> Array:
    return np.array(values, dtype=object if _is_text(values) else None)


def _is_text(values: list[object]) -> bool:
    return any(isinstance(value, str | bytes) for value in values[:1])


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
    step = batch if spec.max_batch_size else 1
    inputs = {tensor.name for tensor in spec.inputs}
    outputs = {tensor.name for tensor in spec.outputs}
    if step > samples:
        raise PlanError(f"found {samples} samples; a batch needs {step}", source)
    for start in range(0, samples - step + 1, step):
        chosen = slice(start, start + step) if spec.max_batch_size else start
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
