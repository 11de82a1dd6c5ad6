"""Fields of a serialised protobuf message, read one at a time without parsing the whole.

A parsed message takes up to 80 times the memory of its bytes. Whoever reads messages of
unknown origin reads them part by part, and bounds each part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
_MAX_VARINT_BYTES: Final = 10


class WireError(ValueError):
    """The bytes are no message."""


class WireReader:
    """Reads fields of one message and the messages in it, at most `most_fields` in all."""

    def __init__(self, most_fields: int) -> None:
        self._most = self._left = most_fields

    def contents(self, message: memoryview, number: int) -> Iterator[memoryview]:
        """The contents of the length-delimited field `number`, each time it occurs.

        Raises:
            WireError: the bytes up to there are no message, or there are too many fields.
        """
        position = 0
        while position < len(message):
            self._left -= 1
            if self._left < 0:
                raise WireError(f"the message has more than {self._most} fields")
            tag, position = _varint(message, position)
            kind = tag & 7
            if kind == _LENGTH_DELIMITED:
                length, position = _varint(message, position)
                end = position + length
                if end > len(message):
                    raise WireError("the message is truncated")
                if tag >> 3 == number:
                    yield message[position:end]
                position = end
            elif kind == 0:
                _, position = _varint(message, position)
            elif kind in _FIXED_BYTES:
                position += _FIXED_BYTES[kind]
            else:
                raise WireError("the message has a field of an unknown kind")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    if position < len(message) and message[position] < 0x80:  # noqa: PLR2004
        return message[position], position + 1
    number = 0
    for place in range(_MAX_VARINT_BYTES):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return number, position
    raise WireError("the message is truncated")
