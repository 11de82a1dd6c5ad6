"""Packets are lost, and sent again by TCP when it notices."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from loadtests.chaos.faults.network import NetworkFault
from loadtests.chaos.network.effect import Directions, Effect


class NetworkLoss(NetworkFault):
    """Nothing fails and much is late: a retransmission takes 200 ms or more."""

    kind: Literal["network_loss"] = "network_loss"
    loss_percent: float = Field(default=5.0, gt=0, le=90)
    """Of all packets, each for itself."""
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`), or both."""

    strength: ClassVar[str | None] = "loss_percent"

    def effect(self) -> Effect:
        """The loss."""
        return Effect(loss_ratio=self.loss_percent / 100, directions=self.directions)
