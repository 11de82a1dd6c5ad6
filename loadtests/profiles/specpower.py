"""SPECpower's graduated loads, for energy per inference at part load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtests.profiles.levels import Level, LeveledProfile


class SpecPower(LeveledProfile):
    """100 % of a calibrated maximum, then 90, 80 … 10 %, then active idle.

    As SPECpower_ssj2008 has it: the score is the sum of the operations of all levels
    over the sum of their mean power, active idle included. The maximum comes from a
    capacity search.
    """

    kind: Literal["specpower"] = "specpower"
    maximum_requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """What 100 % is."""
    level_seconds: float = Field(default=240.0, gt=0, le=86_400)
    """Time at each level; SPECpower takes 240 s."""
    idle_seconds: float = Field(default=240.0, gt=0, le=86_400)
    """Time without a request at the end."""

    def levels(self) -> tuple[Level, ...]:
        """Ten levels and idle."""
        loads = tuple(
            Level(
                f"{percent}%",
                self.maximum_requests_per_second * percent / 100,
                self.level_seconds,
            )
            for percent in range(100, 0, -10)
        )
        return (*loads, Level("idle", 0.0, self.idle_seconds))
