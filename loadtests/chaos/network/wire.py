"""A wire of the fault proxy: connections to one port, and network effects on their bytes.

Memory is bounded: of a direction of a connection as much is held as `HELD_BYTES` and one
read more, of all together `ALL_HELD_BYTES` and one read for each; then reading stops,
as with a full TCP window.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HELD_BYTES: Final = 1 << 20
ALL_HELD_BYTES: Final = 64 << 20
MAX_CONNECTIONS: Final = 1024
_CONNECT_SECONDS: Final = 5.0
_LINGER_NOT: Final = struct.pack("ii", 1, 0)
Direction = Literal["requests", "answers"]
Directions = Literal["both", "requests", "answers"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("requests", "answers")
RETRANSMISSION_SECONDS: Final = 0.2
"""Linux' shortest retransmission timeout (TCP_RTO_MIN)."""
_MOST_LOSSES_IN_A_ROW: Final = 6
_SEGMENT_BYTES: Final = 1448
_PIECE_SECONDS: Final = 0.005
"""Time slice of a narrow link, so that connections share it fairly."""


class Wire:
    """All connections to one port of the server."""

    def __init__(self, host: str, port: int, *, seed: str) -> None:
        rng = random.Random(seed)  # noqa: S311 - a fault is drawn, not a secret
        self.links: dict[Direction, Link] = {each: Link(rng) for each in DIRECTIONS}
        self.held_bytes = 0
        self._upstream = host, port
        self._ends: set[End] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._whole.set()

    @property
    def connections(self) -> int:
        """Number of clients' connections."""
        return sum(end.direction == "requests" for end in self._ends)

    def set_effects(self, effects: Sequence[Effect]) -> None:
        """Apply all of these effects from now on; send data that no longer has to wait."""
        for direction, link in self.links.items():
            link.set_effects(effects, direction)
        if any(link.effect.partitioned for link in self.links.values()):
            self._whole.clear()
        else:
            self._whole.set()
        for end in tuple(self._ends):
            end.effects_changed()

    def accept(self) -> End:
        """Return the end for a new client."""
        return End(self, "requests")

    def opened(self, end: End) -> None:
        """Handle a new connection; connect to the server for one of a client."""
        self._ends.add(end)
        if end.direction == "answers":
            return
        if self.connections > MAX_CONNECTIONS:
            end.abort()
            return
        task = asyncio.get_running_loop().create_task(self._connect(end))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def closed(self, end: End) -> None:
        """Remove a closed connection."""
        self._ends.discard(end)

    async def _connect(self, client: End) -> None:
        loop = asyncio.get_running_loop()
        await self._whole.wait()
        # A real network delays the handshake too.
        await asyncio.sleep(self.links["requests"].latency())
        server = End(self, "answers")
        server.other, client.other = client, server
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(lambda: server, *self._upstream)
        except (OSError, TimeoutError):
            client.abort()
            return
        if client.gone:
            server.abort()
        else:
            client.pace(other_is_full=False)


class End(asyncio.Protocol):
    """One TCP connection, and the data in transit from it to the `other`."""

    def __init__(self, wire: Wire, direction: Direction) -> None:
        self.direction: Direction = direction
        self.other: End | None = None
        self.gone = False
        self._wire = wire
        self._link = wire.links[direction]
        self._transport: asyncio.Transport | None = None
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._latest = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._other_is_full = False
        self._paused = False
        self._sent_last = False

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read nothing of a client before there is a server."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport
        if self.direction == "requests":
            self._paused = True
            transport.pause_reading()
        self._wire.opened(self)

    def data_received(self, data: bytes) -> None:
        """Forward the data at once, or when the link allows it."""
        if self._link.neutral and not self._queue:
            self._send(data)
        elif self._link.resets():
            self.abort()
        else:
            now = asyncio.get_running_loop().time()
            for piece in self._link.pieces(data):
                self._enqueue(piece, self._link.arrival(len(piece), now))

    def eof_received(self) -> bool:
        """Forward the end of this direction after the data in transit."""
        if self._queue or self._link.effect.partitioned:
            self._enqueue(b"", asyncio.get_running_loop().time())
        else:
            self._send(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Reset the other end too, unless it is closing already."""
        self.gone = True
        self._drop()
        self._wire.closed(self)
        if self.other is not None:
            self.other.abort()

    def pause_writing(self) -> None:
        """Stop the other end: this connection's buffer is full."""
        if self.other is not None:
            self.other.pace(other_is_full=True)

    def resume_writing(self) -> None:
        """Resume the other end."""
        if self.other is not None:
            self.other.pace(other_is_full=False)

    # Called by the wire and the other end.

    def effects_changed(self) -> None:
        """Send data that is no longer delayed."""
        if self._queue:
            self._flush()

    def abort(self) -> None:
        """End both connections by a reset."""
        transport = self._transport
        if self.gone or transport is None or transport.is_closing():
            return
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._drop()
        transport.abort()
        if self.other is not None:
            self.other.abort()

    def finish(self) -> None:
        """Close, since both directions have ended."""
        if self._transport is not None:
            self._transport.close()

    def pace(self, *, other_is_full: bool) -> None:
        """Read only while there is room for it."""
        self._other_is_full = other_is_full
        self._pace()

    # Data in transit.

    def _enqueue(self, piece: bytes, due: float) -> None:
        self._latest = max(due, self._latest)
        self._queue.append((self._latest, piece))
        self._queued_bytes += len(piece)
        self._wire.held_bytes += len(piece)
        self._pace()
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._queue and not self._link.effect.partitioned:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._queue[0][0], self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = asyncio.get_running_loop().time()
        while self._queue and not self._link.effect.partitioned:
            due, piece = self._queue[0]
            if due > now and not self._link.neutral:
                break
            self._queue.popleft()
            self._queued_bytes -= len(piece)
            self._wire.held_bytes -= len(piece)
            self._send(piece)
        self._pace()
        self._schedule()

    def _send(self, data: bytes) -> None:
        """Send data to the other end; empty data are the end of the stream."""
        other = self.other
        if other is None or other._transport is None or other._transport.is_closing():  # noqa: SLF001 - of the same class
            return
        if data:
            other._transport.write(data)  # noqa: SLF001
            return
        self._sent_last = True
        if other._sent_last:  # noqa: SLF001
            other.finish()
            self.finish()
        else:
            other._transport.write_eof()  # noqa: SLF001

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wire.held_bytes -= self._queued_bytes
        self._queued_bytes = 0
        self._queue.clear()

    def _pace(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limit = HELD_BYTES // 2 if self._paused else HELD_BYTES
        crowded = self._wire.held_bytes > ALL_HELD_BYTES and self._queued_bytes > 0
        full = self._other_is_full or crowded or self._queued_bytes > limit
        if full and not self._paused:
            transport.pause_reading()
        elif self._paused and not full:
            transport.resume_reading()
        self._paused = full


@dataclass(frozen=True, slots=True)
class Effect:
    """One state of a network; without arguments it does nothing."""

    delay_seconds: float = 0.0
    """Delay in each affected direction."""
    jitter_seconds: float = 0.0
    """Uniform variation of the delay, up or down; never below 0."""
    loss_ratio: float = 0.0
    """Share of packets that are lost."""
    bytes_per_second: float | None = None
    """Limit of all connections together; None for no limit."""
    partitioned: bool = False
    """True if no packets arrive."""
    reset_ratio: float = 0.0
    """Share of packets whose connection is reset, at both ends."""
    directions: Directions = "both"
    """Direction of the affected packets: towards the server, back, or both."""

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON values, for a journal and a control socket."""
        return asdict(self)


def together(effects: Iterable[Effect], direction: Direction) -> Effect:
    """Several at once, in one direction: delays add up, the narrowest link counts."""
    sums = Effect()
    for effect in effects:
        if effect.directions in {"both", direction}:
            sums = Effect(
                delay_seconds=sums.delay_seconds + effect.delay_seconds,
                jitter_seconds=sums.jitter_seconds + effect.jitter_seconds,
                loss_ratio=_either(sums.loss_ratio, effect.loss_ratio),
                bytes_per_second=_narrower(
                    sums.bytes_per_second, effect.bytes_per_second
                ),
                partitioned=sums.partitioned or effect.partitioned,
                reset_ratio=_either(sums.reset_ratio, effect.reset_ratio),
            )
    return sums


def _either(first: float, second: float) -> float:
    return 1 - (1 - first) * (1 - second)


def _narrower(first: float | None, second: float | None) -> float | None:
    known = [rate for rate in (first, second) if rate is not None]
    return min(known) if known else None


_NEUTRAL: Final = Effect()


class Link:
    """One direction of all connections: when bytes arrive."""

    def __init__(self, rng: random.Random) -> None:
        self.effect = _NEUTRAL
        self._rng = rng
        self._free_at = 0.0

    @property
    def neutral(self) -> bool:
        """Return whether bytes arrive unchanged."""
        return self.effect is _NEUTRAL

    def set_effects(self, effects: Sequence[Effect], direction: Direction) -> None:
        """Apply all of these effects from now on."""
        effect = together(effects, direction)
        self.effect = _NEUTRAL if effect == _NEUTRAL else effect
        self._free_at = 0.0

    def resets(self) -> bool:
        """Return whether this packet's connection is reset; drawn anew each time."""
        ratio = self.effect.reset_ratio
        return ratio > 0 and self._rng.random() < ratio

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the pieces that a narrow link sends one after another; else all at once."""
        rate = self.effect.bytes_per_second
        if rate is None:
            yield data
            return
        size = max(_SEGMENT_BYTES, int(rate * _PIECE_SECONDS))
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def latency(self) -> float:
        """Return the delay in seconds, drawn anew for each packet."""
        jitter = self.effect.jitter_seconds
        drawn = self._rng.uniform(-jitter, jitter) if jitter else 0.0
        return max(self.effect.delay_seconds + drawn, 0.0)

    def arrival(self, size: int, now: float) -> float:
        """Return when `size` bytes that are sent now arrive."""
        return self._sent(size, now) + self.latency() + self._stall()

    def _sent(self, size: int, now: float) -> float:
        """Return when the last byte has left; earlier bytes leave first."""
        rate = self.effect.bytes_per_second
        if rate is None:
            return now
        self._free_at = max(now, self._free_at) + size / rate
        return self._free_at

    def _stall(self) -> float:
        lost, ratio = 0, self.effect.loss_ratio
        while ratio > 0 and lost < _MOST_LOSSES_IN_A_ROW and self._rng.random() < ratio:
            lost += 1
        return RETRANSMISSION_SECONDS * ((1 << lost) - 1)
