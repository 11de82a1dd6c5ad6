"""Triton's marks of one request by name, and the meaning of repeated ones.

Of a decoupled model's request some marks come once for each response; their order in a
file is not that of time.
"""

from __future__ import annotations

from array import array
from typing import Final

LATEST_NS: Final = 2**63 - 1
MOST_RESPONSES: Final = 10_000
"""Responses of one request whose times are kept: 80 kB. More are counted only."""

NETWORK_MARKS: Final = frozenset(
    {"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "HTTP_RECV_START", "HTTP_RECV_END"}
)
SEND_START: Final = {"grpc": "GRPC_SEND_START", "http": "HTTP_SEND_START"}
SEND_END: Final = {"grpc": "GRPC_SEND_END", "http": "HTTP_SEND_END"}
COMPLETE: Final = "INFER_RESPONSE_COMPLETE"
"""Over gRPC of the first response alone; over HTTP of each, and of an empty final one."""
COMPUTE: Final = (
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
)

_ONCE: Final = NETWORK_MARKS.union(
    COMPUTE, {"COMPUTE_END", "REQUEST_START", "REQUEST_END"}
)
_LAST: Final = frozenset(SEND_END.values())
_EACH: Final = frozenset({*SEND_START.values(), COMPLETE})
KNOWN: Final = _ONCE | _LAST | _EACH
_BYTES: Final = 100
_BYTES_OF_EACH: Final = 8


class Marks:
    """Times in nanoseconds of the known marks.

    `contradicted` is true where one mark has two times, or a time that cannot be.
    """

    __slots__ = ("_cut", "_each", "_single", "contradicted")

    def __init__(self) -> None:
        self._single: dict[str, int] = {}
        self._each: dict[str, array[int]] = {}
        self._cut: dict[str, int] = {}
        self.contradicted = False

    def add(self, name: str, ns: int) -> None:
        """Record a mark of `KNOWN`; its time is not negative."""
        if ns > LATEST_NS:
            self.contradicted = True
        elif name in _ONCE:
            if self._single.setdefault(name, ns) != ns:
                self.contradicted = True
        elif name in _LAST:
            self._single[name] = max(self._single.get(name, ns), ns)
        else:
            kept = self._each.get(name)
            if kept is None:
                self._each[name] = array("q", (ns,))
            elif len(kept) < MOST_RESPONSES:
                kept.append(ns)
            else:
                self._cut[name] = self._cut.get(name, 0) + 1

    def update(self, other: Marks) -> None:
        """Add those of another part of the same request."""
        for name, ns in other._single.items():
            self.add(name, ns)
        for name, times in other._each.items():
            for ns in times:
                self.add(name, ns)
        for name, number in other._cut.items():
            self._cut[name] = self._cut.get(name, 0) + number
        self.contradicted |= other.contradicted

    def get(self, name: str) -> int | None:
        """The time of a mark that comes once, or the latest of one that ends a response."""
        return self._single.get(name)

    def each(self, name: str) -> list[int]:
        """The times of a mark that comes with each response, sorted."""
        return sorted(self._each.get(name, ()))

    def cut(self, name: str) -> int:
        """Return how many times were dropped of a mark that comes with each response."""
        return self._cut.get(name, 0)

    @property
    def of_the_network(self) -> bool:
        """True if it has marks that only a client's request has."""
        return not NETWORK_MARKS.isdisjoint(self._single)

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""
        each = sum(len(times) for times in self._each.values())
        held = len(self._single) + len(self._each)
        return _BYTES * held + _BYTES_OF_EACH * each
