"""Profiles that hold one rate after another."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from loadtests.profiles.profile import Profile, require_bounded
from loadtests.profiles.rate_curve import Curve, Phase, Spacing

if TYPE_CHECKING:
    import numpy as np

    from loadtests.profiles.rate_curve import Floats


class Level(NamedTuple):
    """One rate held for a while."""

    name: str
    requests_per_second: float
    seconds: float


class LeveledProfile(Profile):
    """Rates held one after the other."""

    spacing: Spacing = Field(default="poisson")
    """Arrivals at random about the rate, or evenly along it."""

    def levels(self) -> tuple[Level, ...]:
        """Return the levels in order."""
        raise NotImplementedError

    @property
    def length_seconds(self) -> float:
        """The sum of all levels."""
        return sum(level.seconds for level in self.levels())

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        require_bounded(self)
        return self

    def phases(self) -> tuple[Phase, ...]:
        """Each level."""
        levels = self.levels()
        ends = list(accumulate(level.seconds for level in levels))
        return tuple(
            Phase(level.name, end - level.seconds, end, level.requests_per_second)
            for level, end in zip(levels, ends, strict=True)
        )

    def curve(self) -> Curve:
        """A staircase."""
        return Curve.staircase(self.phases())

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Seconds from the start, by inversion of the integrated rate."""
        return self.curve().arrivals(self.spacing, rng)


class Steps(LeveledProfile):
    """Equal steps from one rate to another."""

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


class SpecPower(LeveledProfile):
    """100 % of a calibrated maximum, then 90, 80 … 10 %, then active idle.

    As SPECpower_ssj2008 has it: the score is the sum of the operations of all levels
    over the sum of their mean power, active idle included. The maximum comes from a
    capacity search.
    """

    kind: Literal["specpower"] = "specpower"
    maximum_requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """Rate that counts as 100 %."""
    level_seconds: float = Field(default=240.0, gt=0, le=86_400)
    """Time at each level; SPECpower takes 240 s."""
    idle_seconds: float = Field(default=240.0, gt=0, le=86_400)
    """Time without a request at the end."""

    def levels(self) -> tuple[Level, ...]:
        """Ten levels and idle."""
        loads = tuple(
            Level(
                f"{percent} %",
                self.maximum_requests_per_second * percent / 100,
                self.level_seconds,
            )
            for percent in range(100, 0, -10)
        )
        return (*loads, Level("idle", 0.0, self.idle_seconds))
