"""Queues of packets that the kernel has put aside (NFQUEUE): each goes on when it may.

The agent of the mechanism `nfqueue`. The kernel hands over the beginning of each packet
of the server's ports, and keeps the packet until it is told what becomes of it. Bounds:
of each direction `KEPT_PACKETS` in the kernel, of both together `HELD_BYTES`, on a narrow
link what it carries in `QUEUE_SECONDS`; what comes on top is lost, as in a router.

Told to end, it lets go on all that it holds. Killed, the kernel drops those, which TCP
sends again, and lets pass all that come after.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import random
import select
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network import nfnetlink
from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.link import Link
from loadtests.chaos.network.nfnetlink import ACKNOWLEDGE, Message, Netfilter, attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loadtests.chaos.network.effect import Direction

# linux/netfilter/nfnetlink_queue.h
_PACKET, _VERDICT, _CONFIGURE, _VERDICT_ON_ALL = (3 << 8 | each for each in range(4))
_COMMAND, _COPY, _LONGEST, _MASK, _FLAGS = 1, 2, 3, 4, 5
_TAKE, _NOTHING = 1, 3
_COPY_PACKET: Final = 2
_FAIL_OPEN, _UNDIVIDED = 1, 4
_HEAD, _VERDICT_HEAD, _PAYLOAD, _WHOLE_LENGTH = 1, 2, 10, 13
# linux/netfilter.h
_DROP, _ACCEPT = 0, 1
_NUMBERS: Final = 0xFFFF_FFFF
_ALL: Final = 0x3FFF_FFFF
"""Packets are numbered in a circle: what is less than half of it ahead is later."""

KEPT_PACKETS: Final = 10_000
HELD_BYTES: Final = 64 << 20
QUEUE_SECONDS: Final = 0.2
"""A deep queue would be a delay of its own, long after the fault too."""
_LARGEST_PACKET_BYTES: Final = 66_000
"""Over loopback, or it would never get through."""
_COPIED_BYTES: Final = 64
"""The longest header of IPv4, and the ports."""
_SOCKET_BYTES: Final = 8 << 20
# asm-generic/socket.h, linux/socket.h, linux/netlink.h: not in the socket module.
_BUFFER_OF_ROOT, _NETLINK, _NO_ERRORS_OF_ROOM = 33, 270, 5
_PACKETS_AT_ONCE: Final = 256
_IPV6: Final = 6

Flow = bytes


class Held(NamedTuple):
    """A packet on its way; the one due first is the smallest."""

    due: float
    number: int
    queue: int
    size: int
    flow: Flow


class Road:
    """One direction: when each packet arrives, if it does."""

    def __init__(
        self, effect: Effect, direction: Direction, rng: random.Random
    ) -> None:
        self._link = Link(rng)
        self._link.set_effects([effect], direction)
        rate = self._link.effect.bytes_per_second
        self._longest_seconds = (
            None if rate is None else max(QUEUE_SECONDS, _LARGEST_PACKET_BYTES / rate)
        )
        self._latest: dict[Flow, tuple[float, int]] = {}
        """Of each connection with packets on their way: the last one's time, how many."""

    def arrival(self, size: int, flow: Flow, now: float) -> float | None:
        """When a packet arrives that is sent now; None where it is lost.

        Packets of a connection stay in order, as on one route.
        """
        link = self._link
        if link.effect.partitioned or link.loses() or self._full(size, now):
            return None
        due = link.sent(size, now) + link.latency()
        latest, count = self._latest.get(flow, (due, 0))
        due = max(due, latest)
        self._latest[flow] = due, count + 1
        return due

    def arrived(self, flow: Flow) -> None:
        """One of this connection is there."""
        latest, count = self._latest.pop(flow)
        if count > 1:
            self._latest[flow] = latest, count - 1

    def _full(self, size: int, now: float) -> bool:
        rate, longest = self._link.effect.bytes_per_second, self._longest_seconds
        if rate is None or longest is None:
            return False
        return self._link.busy_seconds(now) + size / rate > longest


class PacketQueue:
    """The queues of a fault, and what the kernel has put into them."""

    def __init__(self, roads: dict[int, Road]) -> None:
        self._roads = roads
        self._netfilter = Netfilter()
        self._held: list[Held] = []
        self._held_bytes = 0
        self._last = dict.fromkeys(roads, 0)

    def __enter__(self) -> Self:
        """Take the queues.

        Raises:
            FaultFailedError: another process has one of them.
        """
        kernels_end = self._netfilter.socket
        kernels_end.setsockopt(socket.SOL_SOCKET, _BUFFER_OF_ROOT, _SOCKET_BYTES)
        # Packets that find no room in it are lost, and counted by the kernel.
        kernels_end.setsockopt(_NETLINK, _NO_ERRORS_OF_ROOM, 1)
        for queue in self._roads:
            try:
                self._netfilter.ask([_bind(queue)])
            except OSError as error:
                self._netfilter.socket.close()
                if error.errno in {errno.EPERM, errno.EBUSY}:
                    raise FaultFailedError(
                        f"queue {queue} is another process's; try again, with others"
                    ) from error
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let all go on, and let pass what comes until the queues are gone."""
        self._send(_let_pass(queue).pack() for queue in self._roads)
        self._send(
            _verdict(_VERDICT_ON_ALL, queue, (last + _ALL) & _NUMBERS, _ACCEPT)
            for queue, last in self._last.items()
        )
        self._netfilter.socket.close()

    def run(self, over: socket.socket) -> None:
        """Until there is something to read there."""
        kernels_end = self._netfilter.socket
        kernels_end.setblocking(False)
        while True:
            timeout = None
            if self._held:
                timeout = max(self._held[0].due - time.monotonic(), 0.0)
            readable, _, _ = select.select([kernels_end, over], [], [], timeout)
            if over in readable:
                return
            if kernels_end in readable:
                self._send(self._read())
            self._send(self._due(time.monotonic()))

    def _read(self) -> Iterable[bytes]:
        """Take what the kernel has put aside; verdicts on what is lost at once."""
        for _ in range(_PACKETS_AT_ONCE):
            try:
                data = self._netfilter.socket.recv(1 << 16)
            except BlockingIOError:
                return
            now = time.monotonic()
            for kind, message in nfnetlink.messages(memoryview(data)):
                # The rest are errors: verdicts on packets that the kernel has dropped.
                if kind == _PACKET and not self._take(message, now):
                    yield _verdict(
                        _VERDICT,
                        nfnetlink.resource(message),
                        _number(nfnetlink.attributes(message)),
                        _DROP,
                    )

    def _take(self, message: memoryview, now: float) -> bool:
        """Whether this packet goes on some time."""
        queue = nfnetlink.resource(message)
        found = nfnetlink.attributes(message)
        number = self._last[queue] = _number(found)
        payload = found.get(_PAYLOAD, memoryview(b""))
        size = len(payload)
        if _WHOLE_LENGTH in found:
            (size,) = struct.unpack("!I", found[_WHOLE_LENGTH])
        flow = flow_of(payload)
        if self._held_bytes + size > HELD_BYTES:
            return False
        due = self._roads[queue].arrival(size, flow, now)
        if due is None:
            return False
        heapq.heappush(self._held, Held(due, number, queue, size, flow))
        self._held_bytes += size
        return True

    def _due(self, now: float) -> Iterable[bytes]:
        """Verdicts on what arrives by now."""
        while self._held and self._held[0].due <= now:
            packet = heapq.heappop(self._held)
            self._held_bytes -= packet.size
            self._roads[packet.queue].arrived(packet.flow)
            yield _verdict(_VERDICT, packet.queue, packet.number, _ACCEPT)

    def _send(self, verdicts: Iterable[bytes]) -> None:
        """The kernel acts upon them before this returns."""
        together = b"".join(verdicts)
        if together:
            self._netfilter.socket.send(together)


def flow_of(packet: memoryview) -> Flow:
    """What tells a connection's packets in one direction: addresses and ports."""
    if not packet:
        return b""
    version = packet[0] >> 4
    if version == _IPV6:
        return bytes(packet[8:44])
    length = (packet[0] & 0xF) * 4
    return bytes(packet[12:20]) + bytes(packet[length : length + 4])


def _number(found: dict[int, memoryview]) -> int:
    return int.from_bytes(found[_HEAD][:4], "big")


def _verdict(kind: int, queue: int, number: int, what: int) -> bytes:
    body = attribute(_VERDICT_HEAD, struct.pack("!II", what, number))
    return Message(kind, body, resource=queue).pack()


def _bind(queue: int) -> Message:
    body = (
        attribute(_COMMAND, struct.pack("!BBH", _TAKE, 0, 0)),
        attribute(_COPY, struct.pack("!IB", _COPIED_BYTES, _COPY_PACKET)),
        attribute(_LONGEST, struct.pack("!I", KEPT_PACKETS)),
        attribute(_MASK, struct.pack("!I", _UNDIVIDED)),
        attribute(_FLAGS, struct.pack("!I", _UNDIVIDED)),
    )
    return Message(_CONFIGURE, b"".join(body), ACKNOWLEDGE, resource=queue)


def _let_pass(queue: int) -> Message:
    """There is no more room, and what finds none goes on."""
    body = (
        attribute(_LONGEST, struct.pack("!I", 0)),
        attribute(_MASK, struct.pack("!I", _FAIL_OPEN)),
        attribute(_FLAGS, struct.pack("!I", _FAIL_OPEN)),
    )
    return Message(_CONFIGURE, b"".join(body), resource=queue)


def refusal() -> str | None:
    """Why the kernel has no queues for us; None where it has. Touches nothing."""
    nothing = attribute(_COMMAND, struct.pack("!BBH", _NOTHING, 0, 0))
    try:
        with Netfilter() as netfilter:
            netfilter.ask([Message(_CONFIGURE, nothing, ACKNOWLEDGE)])
    except OSError as error:
        return f"the kernel has no queues of packets ({error.strerror or error})"
    return None


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Be in the way of packets until SIGTERM.

    Args:
        settings: `effect`, its record; `queues`, their numbers by direction; `seed`.
        ready: called when all queues are taken.
    """
    with contextlib.suppress(OSError):
        # A wire does not wait for a processor. Niceness would only count among processes
        # of one session, where the kernel groups by sessions.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    effect = Effect.from_record(settings["effect"])
    rng = random.Random(settings["seed"])  # noqa: S311 - a fault is drawn, not a secret
    roads = {
        number: Road(effect, direction, rng)
        for direction, number in settings["queues"].items()
    }
    over, told = socket.socketpair()
    told.setblocking(False)
    with over, told:
        signal.set_wakeup_fd(told.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        with PacketQueue(roads) as queue:
            ready()
            queue.run(over)
