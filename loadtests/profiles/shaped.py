"""Profiles whose rate changes over time: spells, days, growth, flash crowds, soaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from loadtests.profiles.profile import ShapedProfile
from loadtests.profiles.rate_curve import Curve, Phase

if TYPE_CHECKING:
    from loadtests.profiles.rate_curve import Floats

_MOST_SPELLS = 100_000
_KNOTS_OF_A_DAY = 288
_PEAK_HOUR = 20.0
_SECOND_HARMONIC = 0.25
# Of cos(x) + a cos(2x + 1) over a day: what makes its highest point 1.
_FINE = np.linspace(0.0, 2.0 * np.pi, 10_001)
_HIGHEST = float(np.max(np.cos(_FINE) + _SECOND_HARMONIC * np.cos(2.0 * _FINE + 1.0)))
_KNOTS_OF_GROWTH = 512
_KNOTS_OF_DECAY = 64
_MOST_PHASES = 12


class OnOff(ShapedProfile):
    """Two rates that alternate."""

    kind: Literal["on_off"] = "on_off"
    on_requests_per_second: float = Field(default=20.0, gt=0, le=1e6)
    """The rate of a spell."""
    off_requests_per_second: float = Field(default=0.0, ge=0, le=1e6)
    """The rate between spells."""
    on_seconds: float = Field(default=5.0, gt=0, le=86_400)
    """Length of a spell."""
    off_seconds: float = Field(default=5.0, gt=0, le=86_400)
    """Time between two spells."""

    def check(self) -> None:
        """Refuse spells without number."""
        spells = self.duration_seconds / (self.on_seconds + self.off_seconds)
        if spells > _MOST_SPELLS:
            raise ValueError(
                f"found {spells:,.0f} spells; want at most {_MOST_SPELLS:,}"
            )

    def curve(self) -> Curve:
        """A square wave that begins with a spell."""
        return Curve.staircase(self.phases())

    def phases(self) -> tuple[Phase, ...]:
        """Each spell and each gap."""
        period = self.on_seconds + self.off_seconds
        found = []
        for start in np.arange(0.0, self.duration_seconds, period).tolist():
            middle = min(start + self.on_seconds, self.duration_seconds)
            end = min(start + period, self.duration_seconds)
            found.append(Phase("on", start, middle, self.on_requests_per_second))
            if end > middle:
                found.append(Phase("off", middle, end, self.off_requests_per_second))
        return tuple(found)


class Diurnal(ShapedProfile):
    """A day compressed in time: night, a rise over the morning, an evening peak.

    Two harmonics, as the traffic of web services has them (a trough at night, a
    shoulder in the day, the peak in the evening), scaled to mean and peak.
    """

    kind: Literal["diurnal"] = "diurnal"
    mean_requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The mean over a day."""
    peak_to_mean: float = Field(default=1.8, ge=1, le=1.9)
    """The highest rate over the mean; 1 is a level line."""
    day_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Length of a day."""

    def curve(self) -> Curve:
        """The rate from midnight on, day after day."""
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


class Growth(ShapedProfile):
    """Exponential growth, optionally up to a ceiling (the logistic curve).

    r(t) = K / (1 + (K / r0 - 1) exp(-ln(2) t / doubling)); without a ceiling K the
    exponential.
    """

    kind: Literal["growth"] = "growth"
    first_requests_per_second: float = Field(default=5.0, gt=0, le=1e6)
    """The rate at the start."""
    doubling_seconds: float = Field(default=20.0, gt=0.1, le=7 * 86_400)
    """Time in which the rate doubles, far below the ceiling."""
    ceiling_requests_per_second: float | None = Field(default=None, gt=0, le=1e6)
    """Upper limit of growth; none by default."""

    def curve(self) -> Curve:
        """The curve by many straight pieces."""
        return Curve.sampled(self._rate, self.duration_seconds, _KNOTS_OF_GROWTH)

    def _rate(self, seconds: Floats) -> Floats:
        first, ceiling = (
            self.first_requests_per_second,
            self.ceiling_requests_per_second,
        )
        exponent = np.minimum(np.log(2.0) * seconds / self.doubling_seconds, 600.0)
        if ceiling is None:
            grown: Floats = first * np.exp(exponent)
            return grown
        limited: Floats = ceiling / (1.0 + (ceiling / first - 1.0) * np.exp(-exponent))
        return limited


class Spike(ShapedProfile):
    """A base rate, a steep rise, a while at the peak, an exponential decay."""

    kind: Literal["spike"] = "spike"
    base_requests_per_second: float = Field(default=5.0, gt=0, le=1e6)
    """The rate before, and in the end."""
    peak_requests_per_second: float = Field(default=50.0, gt=0, le=1e6)
    """The rate at the peak."""
    at_seconds: float = Field(default=15.0, ge=0, le=86_400)
    """Start of the rise."""
    rise_seconds: float = Field(default=2.0, gt=0, le=86_400)
    """Duration of the rise, which is linear."""
    hold_seconds: float = Field(default=10.0, ge=0, le=86_400)
    """Duration of the peak."""
    decay_seconds: float = Field(default=5.0, gt=0, le=86_400)
    """Time in which the part above the base falls to 37 %."""

    def check(self) -> None:
        """Refuse a peak that does not end."""
        if self._held() >= self.duration_seconds:
            raise ValueError(
                f"found a peak that ends after {self._held():g} s in a run of "
                f"{self.duration_seconds:g} s; want a peak that ends within the run"
            )

    def _held(self) -> float:
        return self.at_seconds + self.rise_seconds + self.hold_seconds

    def curve(self) -> Curve:
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
        """The phases: before the rise, the rise, the peak and after it."""
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


class Soak(ShapedProfile):
    """A ramp, then a constant rate; reports compare its hours and test for a trend."""

    kind: Literal["soak"] = "soak"
    duration_seconds: float = Field(default=4 * 3600.0, gt=0, le=7 * 86_400)
    """Time in which requests are sent."""
    requests_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """The rate."""
    ramp_ratio: float = Field(default=0.02, ge=0, lt=1)
    """Share of the duration in which the rate rises from 0."""

    def curve(self) -> Curve:
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
