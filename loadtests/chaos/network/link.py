"""One direction of a network, from an effect to the time at which something arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtests.chaos.network.effect import Effect, together

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from loadtests.chaos.network.effect import Direction

RETRANSMISSION_SECONDS: Final = 0.2
"""Linux' shortest retransmission timeout (TCP_RTO_MIN)."""
_MOST_LOSSES_IN_A_ROW: Final = 6
_SEGMENT_BYTES: Final = 1448
_PIECE_SECONDS: Final = 0.005
"""Of a narrow link, at a time, so that connections share it fairly."""
_NEUTRAL: Final = Effect()


class Link:
    """One direction of all connections: when bytes or packets arrive."""

    def __init__(self, rng: random.Random) -> None:
        self.effect = _NEUTRAL
        self.losses = 0
        self._rng = rng
        self._free_at = 0.0

    @property
    def neutral(self) -> bool:
        """Whether bytes arrive as they are sent."""
        return self.effect is _NEUTRAL

    def set_effects(self, effects: Sequence[Effect], direction: Direction) -> None:
        """Do all of these from now on."""
        effect = together(effects, direction)
        self.effect = _NEUTRAL if effect == _NEUTRAL else effect
        self._free_at = 0.0

    def resets(self) -> bool:
        """Return whether this packet's connection is reset; drawn anew each time."""
        ratio = self.effect.reset_ratio
        return ratio > 0 and self._rng.random() < ratio

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what goes over a narrow link one after another; else all at once."""
        rate = self.effect.bytes_per_second
        if rate is None:
            yield data
            return
        size = max(_SEGMENT_BYTES, int(rate * _PIECE_SECONDS))
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def latency(self) -> float:
        """Seconds on the way, drawn anew each time."""
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
