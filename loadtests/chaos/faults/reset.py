"""Connections break in the middle."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from loadtests.chaos.faults.network import NetworkFault
from loadtests.chaos.network.effect import Effect


class Reset(NetworkFault):
    """What a failing load balancer or a full connection table does: TCP resets."""

    kind: Literal["reset"] = "reset"
    reset_percent: float = Field(default=100.0, gt=0, le=100)
    """Of packets: each of these resets its connection, at both ends."""

    strength: ClassVar[str | None] = "reset_percent"

    def effect(self) -> Effect:
        """The resets."""
        return Effect(reset_ratio=self.reset_percent / 100)
