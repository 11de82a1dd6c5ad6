"""The link carries only so many bits a second."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from loadtests.chaos.faults.network import NetworkFault
from loadtests.chaos.network.effect import Directions, Effect


class Bandwidth(NetworkFault):
    """One narrow link for all connections together, each direction by itself."""

    kind: Literal["bandwidth"] = "bandwidth"
    kilobits_per_second: float = Field(default=512.0, ge=8, le=100_000_000)
    """Of each direction. 1 kilobit is 1000 bits."""
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`), or both."""

    strength: ClassVar[str | None] = "kilobits_per_second"

    def effect(self) -> Effect:
        """The rate."""
        return Effect(
            bytes_per_second=self.kilobits_per_second * 125, directions=self.directions
        )
