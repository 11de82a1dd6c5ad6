"""Profiles with one mean rate, that differ in the gaps between requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from loadtests.profiles.profile import TimedProfile, within
from loadtests.profiles.rate_curve import Curve

if TYPE_CHECKING:
    from loadtests.profiles.rate_curve import Floats


class SteadyProfile(TimedProfile):
    """A profile with one rate."""

    requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The mean rate."""

    def curve(self) -> Curve:
        """A level line."""
        rate = self.requests_per_second
        return Curve.of((0.0, rate), (self.duration_seconds, rate))


class Constant(SteadyProfile):
    """One request every 1 / rate seconds. Queues seem too short: requests never bunch."""

    kind: Literal["constant"] = "constant"

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """0, 1 / rate, 2 / rate and so on."""
        return self.curve().arrivals("even", rng)


class Poisson(SteadyProfile):
    """A Poisson process: exponential gaps, coefficient of variation 1."""

    kind: Literal["poisson"] = "poisson"

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Their number is Poisson, their times are uniform order statistics."""
        return self.curve().arrivals("poisson", rng)


class Gamma(SteadyProfile):
    """A renewal process with gamma gaps: bursts where `variation` is above 1.

    Shape 1 / variation^2, mean 1 / rate. 1 is Poisson, below 1 is more regular. The
    first gap is drawn from the gaps' equilibrium distribution, so that the rate is the
    intended one from the first second on: a uniform part of a length-biased gap.
    """

    kind: Literal["gamma"] = "gamma"
    variation: float = Field(default=3.0, gt=0.01, le=20)
    """Standard deviation of the gaps over their mean."""

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Sums of gaps, drawn until the end is passed."""
        shape = self.variation**-2
        scale = 1.0 / (shape * self.requests_per_second)
        last = float(rng.random() * rng.gamma(shape + 1.0, scale))
        parts = [np.array([last])]
        chunk = int(self.duration_seconds * self.requests_per_second) + 100
        while last < self.duration_seconds:
            parts.append(last + np.cumsum(rng.gamma(shape, scale, chunk)))
            last = float(parts[-1][-1])
        return within(np.concatenate(parts), self.duration_seconds)
