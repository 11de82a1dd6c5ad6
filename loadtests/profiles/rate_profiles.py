"""Profiles with a rate: constant, held in steps, or changing over time."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from loadtests.profiles.profile import (
    Curve,
    Phase,
    Profile,
    ShapedProfile,
    Spacing,
    TimedProfile,
    require_bounded,
    within,
)

if TYPE_CHECKING:
    from loadtests.profiles.profile import Floats

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
