"""Columns of a golden set as the input tensors of a model, checked against its signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exporter.features.golden.golden_data import EXPECTED, GoldenSet
from exporter.triton.tensors import FLOATS, array_dtype, shown_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.numerics.normal import Ints
    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec


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
        column = golden.columns.get(tensor.name)
        if column is None:
            if tensor.optional or tensor.name == ignored_input:
                continue
            raise golden.problem(
                f"input of {spec.name} version {spec.version} without a column; "
                f"found {sorted(golden.columns)[:20]}",
                name=tensor.name,
            )
        inputs[tensor.name] = _fitted(golden, spec, tensor, column)
        datatypes[tensor.name] = tensor.datatype
    outputs = {tensor.name: tensor for tensor in spec.outputs}
    for name in golden.expected:
        if name not in outputs:
            raise golden.problem(
                f"{spec.name} version {spec.version} has no such output; it has "
                f"{sorted(outputs)[:20]}",
                name=f"{EXPECTED}{name}",
            )
    return Prepared(
        golden, inputs, datatypes, dict(golden.expected), spec.max_batch_size > 0
    )


def _fitted(
    golden: GoldenSet, spec: ModelSpec, tensor: TensorSpec, column: Array
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
    return _typed(golden, tensor, shaped)


def _typed(golden: GoldenSet, tensor: TensorSpec, column: Array) -> Array:
    if tensor.datatype == "BYTES":
        return _text(column)
    if column.dtype.kind not in "biuf":
        raise golden.problem(
            f"found {column.reshape(len(column), -1)[0, 0]!r:.60}; the model takes "
            f"{tensor.datatype}",
            name=tensor.name,
            row=0,
        )
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


def _text(column: Array) -> Array:
    text = np.empty(column.shape, dtype=object)
    flat = [
        item if isinstance(item, bytes) else str(item).encode()
        for item in column.ravel().tolist()
    ]
    text.ravel()[:] = flat
    return text
