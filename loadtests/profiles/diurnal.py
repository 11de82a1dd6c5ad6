"""A day in minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from loadtests.profiles.base import ShapedProfile
from loadtests.profiles.curve import Curve

if TYPE_CHECKING:
    from loadtests.profiles.curve import Floats

_KNOTS_OF_A_DAY = 288
_PEAK_HOUR = 20.0
_SECOND_HARMONIC = 0.25
# Of cos(x) + a cos(2x + 1) over a day: what makes its highest point 1.
_FINE = np.linspace(0.0, 2.0 * np.pi, 10_001)
_HIGHEST = float(np.max(np.cos(_FINE) + _SECOND_HARMONIC * np.cos(2.0 * _FINE + 1.0)))


class Diurnal(ShapedProfile):
    """Night, a rise over the morning, an evening peak, compressed in time.

    Two harmonics, as the traffic of web services has them (a trough at night, a
    shoulder in the day, the peak in the evening), scaled to mean and peak.
    """

    kind: Literal["diurnal"] = "diurnal"
    mean_requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The mean over a day."""
    peak_to_mean: float = Field(default=1.8, ge=1, le=1.9)
    """The highest rate over the mean; 1 is a level line."""
    day_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """How long a day takes."""

    def shape(self) -> Curve:
        """From midnight on, day after day."""
        days = self.duration_seconds / self.day_seconds
        knots = int(min(np.ceil(days * _KNOTS_OF_A_DAY), 100_000))
        return Curve.sampled(self._rate, self.duration_seconds, max(knots, 2))

    def _rate(self, seconds: Floats) -> Floats:
        turn = seconds / self.day_seconds - _PEAK_HOUR / 24.0
        angle = 2.0 * np.pi * turn
        wave = np.cos(angle) + _SECOND_HARMONIC * np.cos(2.0 * angle + 1.0)
        found: Floats = self.mean_requests_per_second * (
            1.0 + (self.peak_to_mean - 1.0) * wave / _HIGHEST
        )
        return found
