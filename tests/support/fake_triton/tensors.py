"""Tensor bytes of the KServe-v2 protocol, and plausible values for them.

Written independently of the client's codecs, so that tests compare two readings of
the protocol rather than one with itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]

NUMPY_TYPES: Final = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<f4"),
    "BYTES": np.dtype(np.object_),
}
"""The type a tensor has in memory; BF16 is widened to float32."""

FLOATS: Final = frozenset({"FP16", "FP32", "FP64", "BF16"})
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


def element_bytes(dtype: str) -> int | None:
    """Bytes of one element, or None for BYTES, whose elements carry their length."""
    if dtype == "BYTES":
        return None
    return 2 if dtype == "BF16" else NUMPY_TYPES[dtype].itemsize


def encode(dtype: str, values: Array) -> bytes:
    """Data of `values` as the wire carries it."""
    if dtype == "BYTES":
        return b"".join(
            struct.pack("<I", len(value)) + value for value in values.ravel().tolist()
        )
    contiguous = np.ascontiguousarray(values, dtype=NUMPY_TYPES[dtype])
    if dtype == "BF16":
        return (contiguous.view("<u4") >> 16).astype("<u2").tobytes()
    return contiguous.tobytes()


def decode(tensor: WireTensor) -> Array:
    """The tensor's values; ValueError if the data does not have the shape's size."""
    if tensor.dtype == "BYTES":
        values = np.empty(int(np.prod(tensor.shape)), dtype=np.object_)
        items = list(_split_bytes(tensor.raw))
        if len(items) != values.size:
            raise ValueError(f"{len(items)} elements for shape {tensor.shape}")
        values[:] = items
        return values.reshape(tensor.shape)
    if tensor.dtype == "BF16":
        halves = np.frombuffer(tensor.raw, dtype="<u2").astype("<u4")
        return (halves << 16).view("<f4").reshape(tensor.shape)
    flat = np.frombuffer(tensor.raw, dtype=NUMPY_TYPES[tensor.dtype])
    return flat.reshape(tensor.shape)


def _split_bytes(raw: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(raw):
        if offset + 4 > len(raw):
            raise ValueError("a BYTES element ends inside its length")
        (size,) = struct.unpack_from("<I", raw, offset)
        offset += 4
        if offset + size > len(raw):
            raise ValueError("a BYTES element is longer than the data")
        yield raw[offset : offset + size]
        offset += size


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
    values = np.empty(len(flat), dtype=NUMPY_TYPES[dtype])
    values[:] = [str(item).encode() for item in flat] if dtype == "BYTES" else flat
    return WireTensor(name, dtype, shape, encode(dtype, values))


def _flatten(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        for item in data:
            yield from _flatten(item)
    else:
        yield data


def plausible(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Values that depend on `seed` alone: floats in (0, 1), small integers, words."""
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        # Away from 0 and 1, so that no rounding makes a constant of them.
        return rng.uniform(0.01, 0.99, shape).astype(NUMPY_TYPES[dtype])
    if dtype == "BOOL":
        return rng.integers(0, 2, shape).astype(np.bool_)
    numbers = rng.integers(1, SMALLEST_INTEGER_RANGE, shape)
    if dtype != "BYTES":
        return numbers.astype(NUMPY_TYPES[dtype])
    words = np.empty(numbers.size, dtype=np.object_)
    words[:] = [b"word-%d" % number for number in numbers.ravel()]
    return words.reshape(shape)
