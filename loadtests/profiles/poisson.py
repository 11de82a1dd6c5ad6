"""Requests of many independent callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from loadtests.profiles.base import TimedProfile
from loadtests.profiles.curve import Curve

if TYPE_CHECKING:
    import numpy as np

    from loadtests.profiles.curve import Floats


class Poisson(TimedProfile):
    """A Poisson process: exponential gaps, coefficient of variation 1."""

    kind: Literal["poisson"] = "poisson"
    requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The mean rate."""

    def curve(self) -> Curve:
        """A level line."""
        rate = self.requests_per_second
        return Curve.of((0.0, rate), (self.duration_seconds, rate))

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Their number is Poisson, their times are uniform order statistics."""
        return self.curve().arrivals("poisson", rng)
