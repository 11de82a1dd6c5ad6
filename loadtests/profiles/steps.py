"""A staircase of rates, to see where a server gives way."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtests.profiles.levels import Level, LeveledProfile


class Steps(LeveledProfile):
    """From one rate to another in equal steps."""

    kind: Literal["steps"] = "steps"
    first_requests_per_second: float = Field(default=5.0, gt=0, le=1e6)
    """The rate of the first step."""
    last_requests_per_second: float = Field(default=50.0, gt=0, le=1e6)
    """The rate of the last step; below the first one leads down."""
    steps: int = Field(default=10, ge=2, le=1000)
    """Number of rates."""
    step_seconds: float = Field(default=10.0, gt=0, le=86_400)
    """Time at each."""

    def levels(self) -> tuple[Level, ...]:
        """Each step."""
        rise = self.last_requests_per_second - self.first_requests_per_second
        return tuple(
            Level(
                f"step-{i + 1}",
                self.first_requests_per_second + rise * i / (self.steps - 1),
                self.step_seconds,
            )
            for i in range(self.steps)
        )
