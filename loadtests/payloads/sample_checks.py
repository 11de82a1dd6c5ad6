"""Checks of a file's samples against what a model declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exporter.errors import ProtocolError
from exporter.triton.tensors import array_dtype, shown_shape
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec


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
            kind in "iu" and wanted.kind in "iuf" and _in_range(array, wanted)
        )
    if not fits:
        raise PlanError(
            f"found {array.dtype} for {tensor.name!r}; want {tensor.datatype}",
            source,
        )


def _in_range(array: Array, wanted: np.dtype[np.generic]) -> bool:
    if not array.size or wanted.kind == "f":
        return True
    limits = np.iinfo(wanted.name)
    low, high = int(array.min()), int(array.max())
    return int(limits.min) <= low and high <= int(limits.max)
