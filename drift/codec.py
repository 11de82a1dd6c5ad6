r"""A named, versioned, checksummed envelope for saved bytes.

    tritonwatch-drift <kind> <version> <sha256 of what follows the newline>\n<JSON>

The JSON is readable as it is; arrays are lists. What is saved often is `packed`
instead: arrays follow the JSON and a newline as they lie in memory, little-endian, and the
JSON has their places, {"array": dtype, "shape": …, "at": byte}. Writing it to disk atomically
is the caller's part.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

Buffer = bytes | memoryview

MAGIC: Final = "tritonwatch-drift"
MAX_HEADER: Final = 256
PACKED: Final = ("<f8", "<i8", "<u4")


def encode(kind: str, version: int, payload: Mapping[str, Any]) -> bytes:
    """Pack JSON-able values and numpy arrays; the same payload gives the same bytes."""
    body = json.dumps(
        payload, default=_plain, sort_keys=True, separators=(",", ":")
    ).encode()
    digest = hashlib.sha256(body).hexdigest()
    return f"{MAGIC} {kind} {version} {digest}\n".encode() + body


def decode(data: bytes, kind: str, version: int) -> dict[str, Any]:
    """Unpack what `encode` packed.

    Raises:
        StateError: the bytes are foreign, another kind or version, cut or damaged.
    """
    return _object(_intact(data, kind, version), kind)


def packed(kind: str, version: int, payload: Mapping[str, Any]) -> Sequence[Buffer]:
    """Pack as `encode` does, arrays as they lie in memory, in buffers to be joined.

    No copy is made of a contiguous array of one of the types `PACKED`: what is in it
    must not change before it is written. Others become lists.
    """
    arrays: list[memoryview] = []
    place = 0

    def default(value: object) -> object:
        nonlocal place
        if not isinstance(value, np.ndarray) or value.dtype.str not in PACKED:
            return _plain(value)
        arrays.append(np.ascontiguousarray(value).reshape(-1).data.cast("B"))
        found = {"array": value.dtype.str, "shape": value.shape, "at": place}
        place += value.nbytes
        return found

    head = json.dumps(payload, default=default, separators=(",", ":")).encode() + b"\n"
    digest = hashlib.sha256(head)
    for array in arrays:
        digest.update(array)
    header = f"{MAGIC} {kind} {version} {digest.hexdigest()}\n".encode()
    return [header, head, *arrays]


def unpacked(data: bytes, kind: str, version: int) -> dict[str, Any]:
    """Unpack what `packed` packed; arrays are read-only and share the memory of `data`.

    Raises:
        StateError: the bytes are foreign, another kind or version, cut or damaged.
    """
    body = _intact(data, kind, version)
    head, _, arrays = body.partition(b"\n")

    def array(value: dict[str, Any]) -> object:
        if "array" not in value:
            return value
        return _array(arrays, value)

    return _object(head, kind, array)


def _array(data: bytes, description: dict[str, Any]) -> NDArray[np.generic]:
    dtype, shape = (
        str(description["array"]),
        [int(size) for size in description["shape"]],
    )
    if dtype not in PACKED or any(size < 0 for size in shape):
        raise StateError(f"unexpected array of {dtype!r} and shape {shape}")
    number = math.prod(shape)
    if number == 0:
        return np.zeros(shape, dtype)
    try:
        flat = np.frombuffer(data, dtype, number, int(description["at"]))
    except (ValueError, OverflowError) as error:
        raise StateError(f"incomplete array: {error}") from error
    return flat.reshape(shape)


def version_of(data: bytes) -> str:
    """Return the version in the header, "" without one."""
    parts = data[:MAX_HEADER].partition(b"\n")[0].split(b" ")
    return parts[2].decode("ascii", "replace") if len(parts) == 4 else ""  # noqa: PLR2004 - header


def digest_of(data: bytes, kind: str, version: int) -> str:
    """Return the checksum of an intact file, which identifies it."""
    return hashlib.sha256(_intact(data, kind, version)).hexdigest()


def _intact(data: bytes, kind: str, version: int) -> bytes:
    header, newline, body = data.partition(b"\n")
    parts = header[:MAX_HEADER].decode("ascii", "replace").split(" ")
    if not newline or len(parts) != 4 or parts[0] != MAGIC:  # noqa: PLR2004 - header
        raise StateError(f"not a {MAGIC} file: it starts with {data[:24]!r}")
    if parts[1] != kind:
        raise StateError(f"found a {parts[1]!r} file; want a {kind!r} file")
    if parts[2] != str(version):
        raise StateError(
            f"found a {kind} file of version {parts[2]!r}; want version {version}"
        )
    found = hashlib.sha256(body).hexdigest()
    if found != parts[3]:
        raise StateError(
            f"damaged {kind} file: the checksum of its {len(body)} bytes is "
            f"{found[:12]}…, the header has {parts[3][:12]}…"
        )
    return body


def _object(
    body: bytes, kind: str, hook: Callable[[dict[str, Any]], object] | None = None
) -> dict[str, Any]:
    try:
        payload = json.loads(body, object_hook=hook)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"cannot read the {kind} file: {error!r}") from error
    if not isinstance(payload, dict):
        raise StateError(
            f"{kind} file contains {type(payload).__name__}, not an object"
        )
    return payload


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be saved")
