"""Every request arrives later by the same time."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from loadtests.chaos.faults.network import NetworkFault
from loadtests.chaos.network.effect import Directions, Effect


class NetworkDelay(NetworkFault):
    """A server that has moved far away. Once a round trip, unless for both directions."""

    kind: Literal["network_delay"] = "network_delay"
    delay_ms: float = Field(default=50.0, gt=0, le=10_000)
    """Later by so much, in each of the directions."""
    directions: Directions = Field(default="requests")
    """Towards the server, back (`answers`), or both."""

    strength: ClassVar[str | None] = "delay_ms"

    def effect(self) -> Effect:
        """The delay."""
        return Effect(delay_seconds=self.delay_ms / 1000, directions=self.directions)
