"""Connections break in the middle."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.fault import NetworkFault


class Reset(NetworkFault):
    """What a failing load balancer or a full connection table does: TCP resets."""

    kind: Literal["reset"] = "reset"
    reset_percent: float = Field(default=100.0, gt=0, le=100)
    """Of packets: each of these resets its connection, at both ends."""

    strength: ClassVar[str | None] = "reset_percent"

    def effect(self) -> Effect:
        """The resets."""
        return Effect(reset_ratio=self.reset_percent / 100)
