"""Network effects on requests and answers, whichever mechanism makes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

Direction = Literal["requests", "answers"]
Directions = Literal["both", "requests", "answers"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("requests", "answers")


@dataclass(frozen=True, slots=True)
class Effect:
    """One state of a network; without arguments it does nothing."""

    delay_seconds: float = 0.0
    """Later by so much, in each direction that it is for."""
    jitter_seconds: float = 0.0
    """Later or earlier by up to so much, uniformly; never before it was sent."""
    loss_ratio: float = 0.0
    """Share of packets that are lost."""
    bytes_per_second: float | None = None
    """Of all connections together; None for no limit."""
    partitioned: bool = False
    """Nothing arrives."""
    reset_ratio: float = 0.0
    """Share of packets whose connection is reset, at both ends."""
    directions: Directions = "both"
    """What it is for: towards the server, back, or both."""

    def to_record(self) -> dict[str, Any]:
        """For a journal and for a control socket."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return what `to_record` made.

        Raises:
            TypeError: it is something else.
        """
        return cls(**record)

    def applies_to(self, direction: Direction) -> bool:
        """Return whether it does anything in that direction."""
        return self.directions in {"both", direction}


def together(effects: Iterable[Effect], direction: Direction) -> Effect:
    """Several at once, in one direction: delays add up, the narrowest link counts."""
    sums = Effect()
    for effect in effects:
        if effect.applies_to(direction):
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
