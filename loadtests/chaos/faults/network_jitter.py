"""Requests arrive later by times that vary."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from loadtests.chaos.faults.network import NetworkFault
from loadtests.chaos.network.effect import Directions, Effect


class NetworkJitter(NetworkFault):
    """A shared link: a delay, more or less. Bytes of a connection stay in order."""

    kind: Literal["network_jitter"] = "network_jitter"
    jitter_ms: float = Field(default=20.0, gt=0, le=10_000)
    """Up to so much more or less than the delay, uniformly."""
    delay_ms: float = Field(default=20.0, ge=0, le=10_000)
    """In the middle. What would arrive before it was sent arrives at once."""
    directions: Directions = Field(default="requests")
    """Towards the server, back (`answers`), or both."""

    strength: ClassVar[str | None] = "jitter_ms"

    def effect(self) -> Effect:
        """The delay and its spread."""
        return Effect(
            delay_seconds=self.delay_ms / 1000,
            jitter_seconds=self.jitter_ms / 1000,
            directions=self.directions,
        )
