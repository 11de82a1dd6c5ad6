"""Tensors of the KServe-v2 protocol as JSON, and plausible values for them.

Their bytes are the product's, which test_tensors.py compares with those of Triton's clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.triton import tensors
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import FLOATS, array_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]

NOT_IN_JSON: Final = frozenset({"FP16", "BF16"})
SMALLEST_INTEGER_RANGE: Final = 100
"""Plausible integers are below this, so that they fit every integer type."""


@dataclass(frozen=True, slots=True)
class WireTensor:
    """One tensor as it travels: `raw` is the data, little-endian, row-major."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: bytes


def encode(dtype: str, values: Array) -> bytes:
    """Data of `values` as the wire carries it."""
    return tensors.encode(values, dtype)


def decode(tensor: WireTensor) -> Array:
    """The tensor's values; ProtocolError if the data does not have the shape's size."""
    parts = OutputTensor(tensor.name, tensor.dtype, tensor.shape, tensor.raw)
    return tensors.decode(parts, "input")


def to_json(tensor: WireTensor) -> list[Any]:
    """The flat `data` member of a JSON answer."""
    flat = decode(tensor).ravel()
    if tensor.dtype == "BYTES":
        return [value.decode(errors="replace") for value in flat]
    values: list[Any] = flat.tolist()
    return values


def from_json(name: str, dtype: str, shape: tuple[int, ...], data: Any) -> WireTensor:
    """A tensor from JSON `data`, flat or nested; ValueError if its size is not the shape's."""
    flat = list(_flatten(data))
    if len(flat) != int(np.prod(shape)):
        raise ValueError("Shape does not match true shape of 'data' field")
    values = np.empty(len(flat), dtype=array_dtype(dtype))
    values[:] = [str(item).encode() for item in flat] if dtype == "BYTES" else flat
    return WireTensor(name, dtype, shape, encode(dtype, values))


def _flatten(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        for item in data:
            yield from _flatten(item)
    else:
        yield data


def plausible(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Values that depend on `seed` alone: floats in (0, 1), small integers, True."""
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        # Away from 0 and 1, so that no rounding makes a constant of them.
        return rng.uniform(0.01, 0.99, shape).astype(array_dtype(dtype))
    return rng.integers(1, SMALLEST_INTEGER_RANGE, shape).astype(array_dtype(dtype))
