"""Requests at exactly even intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from loadtests.profiles.base import TimedProfile
from loadtests.profiles.curve import Curve

if TYPE_CHECKING:
    import numpy as np

    from loadtests.profiles.curve import Floats


class Constant(TimedProfile):
    """One request every 1 / rate seconds. Flatters queues: nothing ever bunches."""

    kind: Literal["constant"] = "constant"
    requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The rate."""

    def curve(self) -> Curve:
        """A level line."""
        rate = self.requests_per_second
        return Curve.of((0.0, rate), (self.duration_seconds, rate))

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """0, 1 / rate, 2 / rate and so on."""
        return self.curve().arrivals("even", rng)
