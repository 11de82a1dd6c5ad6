"""JSON of unknown origin: depth and size are checked by a scan before it is parsed.

The standard parser keeps the interpreter until it has read the whole text, needs a
multiple of the time for deep nesting, and makes objects up to 70 times as large as
the text. The scan takes a small part of that time and memory, whatever the text holds.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

MAX_DEPTH: Final = 64
"""Tensors have at most 32 dimensions; OTLP's and KServe's own levels are fewer."""
_MOST_GROWTH: Final = 16
"""Limit of the bytes of parsed objects for each byte that a body may have."""
_OBJECT_BYTES: Final = 200
_ARRAY_BYTES: Final = 64
_ELEMENT_BYTES: Final = 32
_CHUNK_BYTES: Final = 1 << 18
_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b"{}[]"


class ForeignJsonError(ValueError):
    """The text is not JSON, or exceeds the limits."""


def parse(text: bytes, most_bytes: int) -> Any:
    """Return the value of `text`; `most_bytes` is the maximum size of a text from its sender.

    Raises:
        ForeignJsonError: it is not JSON, is nested too deeply or has too many values.
    """
    scan(text, most_bytes)
    try:
        # Decoded here: the parser would take UTF-16, which the scan does not read.
        return json.loads(text.decode())
    except ValueError as error:  # bad UTF-8, and integers of thousands of digits, too
        raise ForeignJsonError(str(error)) from None


def scan(text: bytes, most_bytes: int) -> int:
    """Return the end of the first object or array; the length if it does not end.

    Raises:
        ForeignJsonError: it is nested too deeply or holds too many values.
    """
    if b"\\" in text:
        # An escaped quote ends no string; of equal length, so that positions stay.
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    depth = size = 0
    in_string = False
    for start in range(0, len(text), _CHUNK_BYTES):
        chunk = np.frombuffer(
            text, np.uint8, min(_CHUNK_BYTES, len(text) - start), start
        )
        # Before each byte an odd number of quotes: it is in a string.
        quotes = np.logical_xor.accumulate(chunk == _QUOTE)
        outside = quotes if in_string else ~quotes
        in_string ^= bool(quotes[-1])
        objects = outside & (chunk == _OPEN_OBJECT)
        arrays = outside & (chunk == _OPEN_ARRAY)
        ends = outside & ((chunk == _CLOSE_OBJECT) | (chunk == _CLOSE_ARRAY))
        levels = depth + np.cumsum(
            (objects | arrays).view(np.int8) - ends.view(np.int8), dtype=np.int32
        )
        over = np.flatnonzero(ends & (levels <= 0))
        end = int(over[0]) + 1 if over.size else len(chunk)
        if levels[:end].max() > MAX_DEPTH:
            raise ForeignJsonError(
                f"it is nested too deeply; want at most {MAX_DEPTH} levels"
            )
        size += _OBJECT_BYTES * int(np.count_nonzero(objects[:end]))
        size += _ARRAY_BYTES * int(np.count_nonzero(arrays[:end]))
        commas = outside & (chunk == _COMMA)
        size += _ELEMENT_BYTES * int(np.count_nonzero(commas[:end]))
        if size > _MOST_GROWTH * most_bytes:
            raise ForeignJsonError(
                f"it holds too many values for a body of at most {most_bytes} bytes"
            )
        if over.size:
            return start + end
        depth = int(levels[-1])
    return len(text)
