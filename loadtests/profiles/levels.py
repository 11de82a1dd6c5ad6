"""The common part of profiles that run one level rate after another."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Self

from pydantic import Field, model_validator

from loadtests.plan import MAX_REQUESTS
from loadtests.profiles.base import Phase, Profile
from loadtests.profiles.curve import Curve, Spacing

if TYPE_CHECKING:
    import numpy as np

    from loadtests.profiles.curve import Floats


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
        """Return what is held, in order."""
        raise NotImplementedError

    @property
    def length_seconds(self) -> float:
        """The sum of all levels."""
        return sum(level.seconds for level in self.levels())

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        expected = self.curve().expected
        if expected > MAX_REQUESTS:
            raise ValueError(
                f"found {expected:,.0f} requests; want at most {MAX_REQUESTS:,}"
            )
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
        return Curve.of(
            *(
                (second, phase.requests_per_second or 0.0)
                for phase in self.phases()
                for second in (phase.start_seconds, phase.end_seconds)
            )
        )

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Seconds from the start, by inversion of the integrated rate."""
        return self.curve().arrivals(self.spacing, rng)
