"""Tensor specs to numpy arrays and back: every dtype Triton has."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np

from exporter.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.triton.protocol_types import Array, OutputTensor

NUMPY_DTYPES: dict[str, np.dtype[np.generic]] = {
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
}
"""Fixed-size dtypes. BF16 has no numpy type (held as float32), BYTES is object."""

DATATYPES = (*NUMPY_DTYPES, "BF16", "BYTES")
FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
MAX_RANK = 32
"""Limit of dimensions of a tensor; numpy has 64, before 2.0 it had 32."""
_SHOWN_SIZES = 16
_SHOWN_NAME = 80

_WIRE_BF16: np.dtype[np.generic] = np.dtype("<u2")
_LENGTH = struct.Struct("<I")


def array_dtype(datatype: str) -> np.dtype[np.generic]:
    """The numpy dtype that holds `datatype` in memory.

    Raises:
        ProtocolError: Triton has no such datatype.
    """
    if datatype == "BF16":
        return np.dtype(np.float32)
    if datatype == "BYTES":
        return np.dtype(np.object_)
    try:
        return NUMPY_DTYPES[datatype]
    except KeyError:
        raise ProtocolError(
            f"found datatype {datatype[:_SHOWN_NAME]!r}; want one of "
            f"{', '.join(DATATYPES)}"
        ) from None


def encode(array: Array, datatype: str) -> bytes:
    """Raw little-endian content of `array` as the binary tensor extension wants it.

    BYTES elements may be `bytes` or `str` (sent as UTF-8), each after its length as
    uint32. BF16 keeps the upper half of float32, rounded to nearest even.
    """
    if datatype == "BYTES":
        elements = (
            item.encode() if isinstance(item, str) else bytes(item)
            for item in array.ravel().tolist()
        )
        return b"".join(_LENGTH.pack(len(item)) + item for item in elements)
    if datatype == "BF16":
        return _bfloat16(array).tobytes()
    return np.ascontiguousarray(array, dtype=array_dtype(datatype)).tobytes()


def decode(tensor: OutputTensor, what: str = "output") -> Array:
    """Return the output as an array of its declared shape; `what` names it in errors.

    Raises:
        ProtocolError: the bytes do not fill the shape exactly. Empty content for a
            non-empty shape is Triton's known way of answering nothing with success.
    """
    # Before the product: that of a million sizes takes hours.
    if len(tensor.shape) > MAX_RANK or any(dim < 0 for dim in tensor.shape):
        raise ProtocolError(
            f"{what} {tensor.name!r} has the shape {shown_shape(tensor.shape)}; a tensor "
            f"has at most {MAX_RANK} dimensions, none of them negative"
        )
    # Not numpy's product, which overflows: 2^32 x 2^32 elements would be none.
    expected = math.prod(tensor.shape)
    if tensor.datatype == "BYTES":
        return _decode_bytes(tensor, expected, what)
    dtype = _WIRE_BF16 if tensor.datatype == "BF16" else array_dtype(tensor.datatype)
    if len(tensor.data) != expected * dtype.itemsize:
        raise ProtocolError(
            f"{what} {tensor.name!r} has {len(tensor.data)} bytes; {tensor.datatype}"
            f"{shown_shape(tensor.shape)} needs {expected * dtype.itemsize}"
        )
    array = np.frombuffer(tensor.data, dtype=dtype)
    if tensor.datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return _shaped(array, tensor, what)


def shown_shape(shape: Sequence[int]) -> str:
    """The shape for people; of one without end, the beginning."""
    if len(shape) <= _SHOWN_SIZES:
        return str(list(shape))
    return f"{str(list(shape[:_SHOWN_SIZES]))[:-1]}, … {len(shape)} dimensions]"


def _shaped(array: Array, tensor: OutputTensor, what: str) -> Array:
    try:
        return array.reshape(tensor.shape)
    except (ValueError, OverflowError):
        # Beside a 0, sizes and ranks that no array can have fit any content.
        raise ProtocolError(
            f"{what} {tensor.name!r} has an impossible shape of {len(tensor.shape)} "
            "dimensions"
        ) from None


def _bfloat16(array: Array) -> Array:
    values = np.ascontiguousarray(array, dtype="<f4")
    bits = values.view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding up a NaN's payload can carry into the sign or make it infinite.
    quiet_nan = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet_nan, rounded).astype("<u2")


def _decode_bytes(tensor: OutputTensor, expected: int, what: str) -> Array:
    items: list[bytes] = []
    data, position = tensor.data, 0
    while position < len(data) and len(items) < expected:
        if position + 4 > len(data):
            break
        (length,) = _LENGTH.unpack_from(data, position)
        if position + 4 + length > len(data):
            break
        items.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    if position != len(data) or len(items) != expected:
        raise ProtocolError(
            f"{what} {tensor.name!r} holds {len(items)} whole BYTES elements in "
            f"{len(data)} bytes; shape {shown_shape(tensor.shape)} needs {expected}"
        )
    array = np.empty(expected, dtype=np.object_)
    array[:] = items
    return _shaped(array, tensor, what)
