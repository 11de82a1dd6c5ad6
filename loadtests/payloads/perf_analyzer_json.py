"""perf_analyzer's JSON input: `data`, one object a request, and `validation_data`.

A tensor is a list of values, or {"content": [...], "shape": [...]}, or {"b64": "..."}.
Streams of sequences (`data` as a list of lists) are sent one after the other.
https://github.com/triton-inference-server/perf_analyzer, docs/input_data.md
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import numpy as np

from exporter.errors import ProtocolError
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import array_dtype, decode
from loadtests import json_file
from loadtests.errors import PlanError
from loadtests.payloads.bodies import Row
from loadtests.payloads.sample_checks import require_dtype, require_fit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec


def rows_of(path: Path, spec: ModelSpec) -> Iterator[Row]:
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
