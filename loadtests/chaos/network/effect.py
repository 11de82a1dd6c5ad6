"""Network effects on requests and answers, as a link of the fault proxy makes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

Direction = Literal["requests", "answers"]
Directions = Literal["both", "requests", "answers"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("requests", "answers")
RETRANSMISSION_SECONDS: Final = 0.2
"""Linux' shortest retransmission timeout (TCP_RTO_MIN)."""
_MOST_LOSSES_IN_A_ROW: Final = 6
_SEGMENT_BYTES: Final = 1448
_PIECE_SECONDS: Final = 0.005
"""Time slice of a narrow link, so that connections share it fairly."""


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
        self.losses = 0
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
        self.losses += lost
        return RETRANSMISSION_SECONDS * ((1 << lost) - 1)
