"""Nothing arrives, and nobody is told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtests.chaos.faults.network import NetworkFault
from loadtests.chaos.network.effect import Directions, Effect


class Partition(NetworkFault):
    """Packets vanish; connections stay open until somebody gives up."""

    kind: Literal["partition"] = "partition"
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`: work is done and nobody hears of
    it), or both."""

    def effect(self) -> Effect:
        """The partition."""
        return Effect(partitioned=True, directions=self.directions)
