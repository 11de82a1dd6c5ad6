r"""Bytes that know whether they are whole: a named, versioned, checksummed envelope.

    tritonwatch-drift <kind> <version> <sha256 of what follows the newline>\n<JSON>

The JSON is readable as it is; arrays are lists. Writing it to disk atomically is the
caller's part.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC: Final = "tritonwatch-drift"
MAX_HEADER: Final = 256


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
    header, newline, body = data.partition(b"\n")
    parts = header[:MAX_HEADER].decode("ascii", "replace").split(" ")
    if not newline or len(parts) != 4 or parts[0] != MAGIC:  # noqa: PLR2004 - header
        raise StateError(f"not a {MAGIC} file: it starts with {data[:24]!r}")
    if parts[1] != kind:
        raise StateError(f"a {parts[1]!r} file was given where a {kind!r} belongs")
    if parts[2] != str(version):
        raise StateError(
            f"{kind} file of version {parts[2]!r}; this program reads version {version}"
        )
    found = hashlib.sha256(body).hexdigest()
    if found != parts[3]:
        raise StateError(
            f"damaged {kind} file: the checksum of its {len(body)} bytes is "
            f"{found[:12]}…, the header says {parts[3][:12]}…"
        )
    payload = json.loads(body)
    if not isinstance(payload, dict):
        raise StateError(f"{kind} file holds {type(payload).__name__}, not an object")
    return payload


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be saved")
