"""Values that wait for others, bounded in time and bytes, and shared by their senders."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

V = TypeVar("V")


class _Held(NamedTuple, Generic[V]):
    value: V
    size: int
    sender: str
    since: float


class FairBuffer(Generic[V]):
    """Values by key. Above the limit, the sender that holds most loses its oldest value."""

    def __init__(self, most_seconds: float, most_bytes: int) -> None:
        self._most_seconds = most_seconds
        self._most_bytes = most_bytes
        self._held: dict[str, _Held[V]] = {}
        self._keys: dict[str, OrderedDict[str, None]] = {}
        """Keys of each sender, oldest first."""
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def __len__(self) -> int:
        return len(self._held)

    def put(self, key: str, value: V, size: int, now: float, sender: str) -> None:
        """Add a value of about `size` bytes; another one of this key is replaced."""
        self.pop(key)
        self._held[key] = _Held(value, size, sender, now)
        self._keys.setdefault(sender, OrderedDict())[key] = None
        self._add(sender, size)

    def resize(self, key: str, size: int) -> None:
        """Note that the value of `key` now takes about `size` bytes; its age stays."""
        held = self._held.get(key)
        if held is not None:
            self._held[key] = held._replace(size=size)
            self._add(held.sender, size - held.size)

    def get(self, key: str) -> V | None:
        """Return the value of `key`, which stays."""
        held = self._held.get(key)
        return None if held is None else held.value

    def pop(self, key: str) -> V | None:
        """Remove and return the value of `key`."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        keys = self._keys[held.sender]
        del keys[key]
        self._add(held.sender, -held.size)
        if not keys:
            del self._keys[held.sender], self._bytes[held.sender]
        return held.value

    def overdue(self, now: float) -> Iterator[tuple[str, V]]:
        """Yield and remove values that waited too long, and those above the limit."""
        for sender in tuple(self._keys):
            while sender in self._keys:
                key = next(iter(self._keys[sender]))
                held = self._held[key]
                if now - held.since < self._most_seconds:
                    break
                self.pop(key)
                yield key, held.value
        while self._total > self._most_bytes:
            greediest = max(self._bytes, key=self._bytes.__getitem__)
            key = next(iter(self._keys[greediest]))
            value = self._held[key].value
            self.pop(key)
            yield key, value

    def _add(self, sender: str, size: int) -> None:
        self._bytes[sender] += size
        self._total += size
