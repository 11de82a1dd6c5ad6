"""The same load for hours: what leaks, drifts or wears shows only then."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtests.profiles.base import Phase, ShapedProfile
from loadtests.profiles.curve import Curve

_MOST_PHASES = 12


class Soak(ShapedProfile):
    """A ramp up, then one rate; reports compare its hours and test for a trend."""

    kind: Literal["soak"] = "soak"
    duration_seconds: float = Field(default=4 * 3600.0, gt=0, le=7 * 86_400)
    """How long requests are sent."""
    requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The rate."""
    ramp_ratio: float = Field(default=0.02, ge=0, lt=1)
    """Share of the duration in which the rate rises from 0."""

    def shape(self) -> Curve:
        """A ramp and a level line."""
        rate, ramp = self.requests_per_second, self.duration_seconds * self.ramp_ratio
        return Curve.of(
            (0.0, 0.0 if ramp else rate), (ramp, rate), (self.duration_seconds, rate)
        )

    def phases(self) -> tuple[Phase, ...]:
        """The ramp, and the rest in twelve equal parts."""
        ramp = self.duration_seconds * self.ramp_ratio
        width = (self.duration_seconds - ramp) / _MOST_PHASES
        rate = self.requests_per_second
        ramps = (Phase("ramp", 0.0, ramp, rate / 2),) if ramp else ()
        parts = tuple(
            Phase(f"part-{i + 1}", ramp + i * width, ramp + (i + 1) * width, rate)
            for i in range(_MOST_PHASES)
        )
        return ramps + parts
