"""Admission: limits on connections, calls and messages for each listener.

Every listener of the process takes its connections from one `Admission`, so that all of
them together leave file descriptors for the sidecar itself, and refuse data while too
much memory is in use. A full listener closes an idle connection of the address that
holds most, the one that has been idle longest; if none is idle, the oldest one of an
address that holds more than the newcomer's: no client is cut off while it is being
answered unless others hold fewer, and no sender can keep the others out. Calls within
gRPC connections are limited in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import resource
import threading
import time
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar, get_args

import structlog

from exporter import catalogue
from exporter.samples import Sample
from exporter.system.memory import MemoryBudget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

log = structlog.get_logger()

Listener = Literal["web", "tap", "grpc"]
Reason = Literal[
    "crowded",
    "calls",
    "bytes",
    "descriptors",
    "handshake",
    "passwords",
    "probes",
    "cross_site",
    "memory",
]
CONNECTIONS: Final[dict[Listener, int]] = {"web": 128, "tap": 128, "grpc": 64}
"""Connections at once, by listener."""
CALLS: Final = 64
"""gRPC calls at once that wait for a message; each may hold a part of one in memory."""
HELD_BYTES: Final = 32 << 20
"""Limit of all bodies or messages of a listener that are read or wait to be processed."""
_OVERHEAD_BYTES: Final = 4_096
"""Bytes that an empty body takes, with its place in the queue."""
_DESCRIPTORS: Final[dict[Listener, int]] = {"web": 1, "tap": 1, "grpc": 3}
"""File descriptors of one connection: gRPC's are relayed over a Unix socket."""
OWN_DESCRIPTORS: Final = 256
"""Descriptors reserved for Triton, files, sensors and the listeners themselves."""
_WANTED_DESCRIPTORS: Final = 4_096
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` where the process or the machine is out of resources."""


_NOTICED_SECONDS: Final = 0.005
"""A parser that holds the interpreter lock for less causes no noticeable delay."""
_LONGEST_PAUSE_SECONDS: Final = 1.0
_PARSING_SHARE: Final = 0.25
"""Share of the time for long bodies."""

P = ParamSpec("P")
T = TypeVar("T")


class CrowdedError(Exception):
    """No capacity: all places are taken and no connection is idle, or no bytes are left."""


class Visitor:
    """One connection, or one gRPC call, while it lasts.

    `idle_since` returns the time since which it has waited for its peer, None while it is
    being answered. `end` closes it.
    """

    __slots__ = ("_places", "address", "end", "idle_since", "since")

    def __init__(self, places: Places, address: str, since: float) -> None:
        self._places = places
        self.address = address
        self.since = since
        self.idle_since: Callable[[], float | None] = lambda: since
        self.end: Callable[[], object] = lambda: None

    def leave(self) -> None:
        """Release the place; safe to call more than once."""
        self._places.remove(self)


class Turns:
    """One turn at a time, address by address: many of one delay another by one."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def of(self, peer: str) -> AsyncGenerator[None]:
        """Wait for a turn and keep it in the block."""
        if self._taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(peer, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._forget(peer, turn)
                else:  # it was given to us meanwhile
                    self._pass_on()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _forget(self, peer: str, turn: asyncio.Future[None]) -> None:
        """Remove a turn that nobody waits for: it would delay the next one of its address."""
        turns = self._waiting.get(peer, deque())
        with contextlib.suppress(ValueError):
            turns.remove(turn)
        if not turns:
            self._waiting.pop(peer, None)

    def _pass_on(self) -> None:
        while self._waiting:
            peer, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[peer] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


class ParseSlot:
    """Lets one thread parse a body at a time, for at most a share of the time.

    Parsers of JSON and protobuf hold the interpreter lock until they finish, and the event
    loop waits for it after each system call. Without pauses between long ones, connections
    would come faster than it can accept them. After work of less than `noticed_seconds`
    there is no pause, and none is longer than `longest_pause_seconds`.
    """

    def __init__(
        self,
        *,
        share: float = _PARSING_SHARE,
        noticed_seconds: float = _NOTICED_SECONDS,
        longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._pause_ratio = 1 / share - 1
        self._noticed_seconds = noticed_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._lock = threading.Lock()
        self._free_at = 0.0

    def run(self, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `parse` once no other thread does and the pause after the last call is over."""
        with self._lock:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
            before = time.thread_time()
            try:
                return parse(*args, **kwargs)
            finally:
                taken = time.thread_time() - before
                if taken > self._noticed_seconds:
                    pause = min(self._pause_ratio * taken, self._longest_pause_seconds)
                    self._free_at = time.monotonic() + pause


class Places:
    """A limited number of places; when all are taken, addresses share them fairly."""

    def __init__(self, limit: int, refused: Counter[Reason], reason: Reason) -> None:
        self.limit = limit
        self.visitors: set[Visitor] = set()
        self._by_address: dict[str, set[Visitor]] = {}
        self.refused = refused
        self._reason: Reason = reason

    def enter(self, peer: str, now: float) -> Visitor:
        """Take a place; when all are taken, end another visitor for it.

        `now` is the event loop's time.

        Raises:
            CrowdedError: all visitors are being answered, and no address has more of them.
        """
        visitor = Visitor(self, network_of(peer), now)
        if len(self.visitors) >= self.limit:
            self.refused[self._reason] += 1
            self._make_room(visitor.address)
        self.visitors.add(visitor)
        self._by_address.setdefault(visitor.address, set()).add(visitor)
        return visitor

    def remove(self, visitor: Visitor) -> None:
        """Free the place of a visitor, if it has one."""
        self.visitors.discard(visitor)
        others = self._by_address.get(visitor.address, set())
        others.discard(visitor)
        if not others:
            self._by_address.pop(visitor.address, None)

    def held_by(self, address: str) -> int:
        """Return the number of places that an address holds now."""
        return len(self._by_address.get(address, ()))

    def _make_room(self, newcomer: str) -> None:
        least = self.held_by(newcomer)
        idle = [
            (-held, since, visitor)
            for visitor in self.visitors
            if (held := self.held_by(visitor.address)) >= least
            and (since := visitor.idle_since()) is not None
        ]
        # Else slow requests, one after the other, would keep all other senders out.
        ended = min(
            idle
            or [
                (-held, visitor.since, visitor)
                for visitor in self.visitors
                if (held := self.held_by(visitor.address)) > least
            ],
            key=lambda each: each[:2],
            default=None,
        )
        if ended is None:
            raise CrowdedError
        ended[2].leave()
        ended[2].end()


class Entrance(Places):
    """The connections of one listener; all listeners share a parse slot and memory budget."""

    def __init__(
        self,
        listener: Listener,
        limit: int,
        parsing: ParseSlot,
        memory: MemoryBudget,
    ) -> None:
        super().__init__(limit, Counter(), "crowded")
        self.parsing = parsing
        self.calls = Places(CALLS, self.refused, "calls")
        """Places for calls, where one connection carries many requests at once."""
        self.held_limit = HELD_BYTES
        self.held: Counter[str] = Counter()
        """Bytes of bodies that are read or wait, by address."""
        self._listener = listener
        self.memory = memory

    def samples(self) -> Iterator[Sample]:
        """Yield the open connections, their limit, and refusals by reason."""
        labels = (self._listener,)
        yield Sample(catalogue.ADMISSION_CONNECTIONS, len(self.visitors), labels)
        yield Sample(catalogue.ADMISSION_LIMIT, self.limit, labels)
        for reason in get_args(Reason):
            number = self.refused[reason]
            yield Sample(catalogue.ADMISSION_REFUSED, number, (*labels, reason))


class Held:
    """The bytes that one body or message of an address holds, released once."""

    def __init__(self, entrance: Entrance, address: str) -> None:
        self._entrance = entrance
        self._address = address
        self._bytes = 0

    def add(self, number: int) -> None:
        """Hold more.

        Beyond one body an address may not hold more than it leaves free (Choudhury and
        Hahne 1998, dynamic queue length thresholds): one alone holds a half, and the next
        still finds as much.

        Raises:
            CrowdedError: with the reason.
        """
        entrance, own = self._entrance, self._bytes
        number += 0 if own else _OVERHEAD_BYTES
        if entrance.memory.exceeded:
            entrance.refused["memory"] += 1
            raise CrowdedError("too much memory is in use")
        free = entrance.held_limit - entrance.held.total() - number
        others = entrance.held[self._address] - own
        if free < 0 or (others and others + own + number > free):
            entrance.refused["bytes"] += 1
            whose = "of this address " if others else ""
            raise CrowdedError(f"too many bodies {whose}wait to be read")
        entrance.held[self._address] += number
        self._bytes += number

    def let_go(self) -> None:
        """Release all of it; safe to call more than once."""
        self._entrance.held[self._address] -= self._bytes
        self._entrance.held += Counter()  # drops what is zero
        self._bytes = 0


class Admission:
    """The connections of all listeners, within the process's descriptors and memory."""

    def __init__(
        self, memory: MemoryBudget | None = None, descriptors: int | None = None
    ) -> None:
        available = _raised_limit() if descriptors is None else descriptors
        wanted = sum(CONNECTIONS[each] * _DESCRIPTORS[each] for each in CONNECTIONS)
        share = min(1.0, (available - OWN_DESCRIPTORS) / wanted)
        self.memory = memory or MemoryBudget(None)

        def entrance(listener: Listener, least: int) -> Entrance:
            limit = max(least, int(share * CONNECTIONS[listener]))
            return Entrance(listener, limit, slot, self.memory)

        slot = ParseSlot()
        self.web = entrance("web", 8)
        self.tap = entrance("tap", 4)
        self.grpc = entrance("grpc", 2)
        if share < 1:
            log.warning(
                "few_file_descriptors",
                limit=available,
                wanted=wanted + OWN_DESCRIPTORS,
                effect="connections at a time: "
                f"{self.web.limit} to the pages, {self.tap.limit} and {self.grpc.limit} to the taps",
                remedy="raise the limit of open files (ulimit -n, LimitNOFILE)",
            )

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of every listener."""
        for entrance in (self.web, self.tap, self.grpc):
            yield from entrance.samples()
        limit = self.memory.limit_bytes
        if limit is not None:
            yield Sample(catalogue.ADMISSION_MEMORY_LIMIT, limit)


def _raised_limit() -> int:
    """Raise the soft limit of open files as far as is useful, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = max(soft, min(hard, _WANTED_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


@functools.lru_cache(maxsize=1024)
def network_of(peer: str) -> str:
    """Return what quotas apply to: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
