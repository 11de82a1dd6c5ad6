"""Messages of a sender process to its worker: JSON lines, some with arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from loadtests.result import Requests

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BATCH: Final = 1 << 20
_TIMES: Final = ("intended", "sent", "first", "done")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `kind` is ready, batch, result or failed."""

    kind: str
    content: Mapping[str, Any]
    requests: Requests | None = None


def write(out: IO[bytes], frame: Frame) -> None:
    """Write it, and flush."""
    count = None if frame.requests is None else len(frame.requests)
    head = {"kind": frame.kind, "count": count, **frame.content}
    parts = [json.dumps(head, separators=(",", ":")).encode(), b"\n"]
    if frame.requests is not None:
        for part in fields(Requests):
            array = getattr(frame.requests, part.name)
            wire = "<f8" if part.name in _TIMES else "u1"
            parts.append(array.astype(wire, copy=False).tobytes())
    out.write(b"".join(parts))
    out.flush()


def read(source: IO[bytes]) -> Frame | None:
    """The next frame; None at the end.

    Raises:
        ValueError: it ends in the middle, or is no frame.
    """
    line = source.readline()
    if not line:
        return None
    content = json.loads(line)
    kind, count = content.pop("kind"), content.pop("count")
    if count is None:
        return Frame(kind, content)
    if not 0 <= count <= MAX_BATCH:
        raise ValueError(f"found a batch of {count}; at most {MAX_BATCH} are read")
    arrays = {}
    for part in fields(Requests):
        dtype = np.dtype("<f8" if part.name in _TIMES else "u1")
        raw = source.read(count * dtype.itemsize)
        if len(raw) != count * dtype.itemsize:
            raise ValueError("a batch ends in the middle")
        arrays[part.name] = np.frombuffer(raw, dtype)
    return Frame(kind, content, Requests(**arrays))
