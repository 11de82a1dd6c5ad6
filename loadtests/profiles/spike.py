"""A flash crowd: everybody comes at once, and leaves slowly."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from loadtests.profiles.base import Phase, ShapedProfile
from loadtests.profiles.curve import Curve

_KNOTS_OF_DECAY = 64


class Spike(ShapedProfile):
    """A base rate, a steep rise, a while at the peak, an exponential decay."""

    kind: Literal["spike"] = "spike"
    base_requests_per_second: float = Field(default=5.0, gt=0, le=1e6)
    """The rate before, and in the end."""
    peak_requests_per_second: float = Field(default=50.0, gt=0, le=1e6)
    """The rate at the peak."""
    at_seconds: float = Field(default=15.0, ge=0, le=86_400)
    """When the rise begins."""
    rise_seconds: float = Field(default=2.0, gt=0, le=86_400)
    """How long it rises, in a straight line."""
    hold_seconds: float = Field(default=10.0, ge=0, le=86_400)
    """How long the peak holds."""
    decay_seconds: float = Field(default=5.0, gt=0, le=86_400)
    """Time in which what is above the base falls to 37 %."""

    def check(self) -> None:
        """Refuse a peak that does not end."""
        if self._held() >= self.duration_seconds:
            raise ValueError(
                f"found a peak that ends after {self._held():g} s in a run of "
                f"{self.duration_seconds:g} s; want it to end before"
            )

    def _held(self) -> float:
        return self.at_seconds + self.rise_seconds + self.hold_seconds

    def shape(self) -> Curve:
        """Straight pieces up to the peak's end, then the decay."""
        base, peak = self.base_requests_per_second, self.peak_requests_per_second
        rest = self.duration_seconds - self._held()
        after = np.linspace(0.0, rest, _KNOTS_OF_DECAY + 1)
        fall = base + (peak - base) * np.exp(-after / self.decay_seconds)
        return Curve.of(
            (0.0, base),
            (self.at_seconds, base),
            (self.at_seconds + self.rise_seconds, peak),
            *zip((self._held() + after).tolist(), fall.tolist(), strict=True),
        )

    def phases(self) -> tuple[Phase, ...]:
        """Before, the rise, the peak and after it."""
        edges = (
            0.0,
            self.at_seconds,
            self.at_seconds + self.rise_seconds,
            self._held(),
            self.duration_seconds,
        )
        names = ("before", "rise", "peak", "after")
        return tuple(
            Phase(name, start, end, None)
            for name, start, end in zip(names, edges, edges[1:], strict=False)
            if end > start
        )
