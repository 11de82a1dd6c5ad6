"""Many short texts in little memory: those with a cell of their own, and the rest."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from drift.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MAX_BYTES: Final = 32
_CUT: Final = 20
_MARK_BYTES: Final = 4
FEW_NAMES: Final = 1024
FILTER_BYTES: Final = (2048, 8192)
"""Bytes of a filter of at most `FEW_NAMES`, and of one of more."""
_FOUR: Final = struct.Struct("<4H")


def short(name: str) -> str:
    """The name, or its beginning and a mark of all of it, in at most `MAX_BYTES` of UTF-8.

    Example:
        >>> short("red"), short("a very long name, and then some more of it")
        ('red', 'a very long name, an…4c1b54c7')
    """
    if len(name) * 4 <= MAX_BYTES:
        return name
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) <= MAX_BYTES:
        return name
    mark = hashlib.blake2b(encoded, digest_size=_MARK_BYTES).hexdigest()
    return f"{encoded[:_CUT].decode('utf-8', 'ignore')}…{mark}"


class Names(Sequence[str]):
    """A tuple of texts that holds their bytes in one piece: no object for each."""

    __slots__ = ("_ends", "_text")

    def __init__(self, names: Iterable[str] = ()) -> None:
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        self._text = b"".join(encoded)
        lengths = np.array([0, *map(len, encoded)], np.int64)
        self._ends = lengths.cumsum().astype(np.uint32)

    def __len__(self) -> int:
        return self._ends.size - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        """The name at a place, or a tuple of those in a slice."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = range(len(self))[index]
        part = self._text[self._ends[place] : self._ends[place + 1]]
        return part.decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names):
            return NotImplemented
        return self._text == other._text and np.array_equal(self._ends, other._ends)

    def __hash__(self) -> int:
        return hash((self._text, self._ends.tobytes()))

    def __repr__(self) -> str:
        return f"Names({list(self)})"


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Set of names in little memory (a Bloom filter); it may contain a few others.

    2 kB of up to 1,024 names, 8 kB of more. Of 1,024 names 1 in 400 others is mistaken for
    one of them; of 4,096 too; of 16,384 1 in 6.

    Reference: Bloom (1970), "Space/time trade-offs in hash coding".
    """

    number: int = 0
    bits: bytes = b""

    @classmethod
    def of(cls, names: Collection[str]) -> NameFilter:
        """Return a filter of these names; without any it takes no memory."""
        if not names:
            return cls()
        bits = bytearray(FILTER_BYTES[len(names) > FEW_NAMES])
        last = len(bits) - 1
        for name in names:
            for place in _places(name):
                bits[place >> 3 & last] |= 1 << (place & 7)
        return cls(len(names), bytes(bits))

    def state(self) -> object:
        """Return values for JSON."""
        if not self:
            return []
        return {"number": self.number, "bits": b64encode(self.bits).decode()}

    @classmethod
    def from_state(cls, state: dict[str, Any] | list[str]) -> NameFilter:
        """Restore what `state` returned, or a list of the names themselves.

        Raises:
            StateError: it is of no size of ours.
        """
        if isinstance(state, list):
            return cls.of({short(name) for name in state})
        bits = b64decode(state["bits"])
        if len(bits) not in FILTER_BYTES:
            raise StateError(f"a filter of names of {len(bits)} bytes")
        return cls(int(state["number"]), bits)

    def __len__(self) -> int:
        return self.number

    def __contains__(self, name: str) -> bool:
        bits = self.bits
        if not bits:
            return False
        last = len(bits) - 1
        # One by one and not by all(): a table asks this of every value it does not know.
        for place in _places(name):
            if not bits[place >> 3 & last] >> (place & 7) & 1:
                return False
        return True


NO_NAMES: Final = NameFilter()


def _places(name: str) -> tuple[int, ...]:
    encoded = name.encode("utf-8", "surrogatepass")
    return _FOUR.unpack(hashlib.blake2b(encoded, digest_size=_FOUR.size).digest())
