"""The base of every load profile: settings, and arrivals that follow a rate exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from exporter.settings import Settings
from loadtests.plan import MAX_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ARRIVALS = 3  # beside the streams of `loadtests.plan`
Spacing = Literal["poisson", "even"]


class Profile(Settings):
    """The schedule of requests. `kind` is its name in files, commands and labels."""

    @property
    def length_seconds(self) -> float:
        """Time in which requests are sent; the last answer may come later."""
        raise NotImplementedError

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Seconds from the start, never decreasing, all before `length_seconds`."""
        raise NotImplementedError

    def curve(self) -> Curve:
        """The intended rate over time."""
        raise NotImplementedError

    def phases(self) -> tuple[Phase, ...]:
        """Phases that reports distinguish; by default the whole."""
        length = self.length_seconds
        rate = self.curve().expected / length
        return (Phase(str(getattr(self, "kind", "load")), 0.0, length, rate),)


class TimedProfile(Profile):
    """A profile with a duration."""

    duration_seconds: float = Field(default=60.0, gt=0, le=7 * 86_400)
    """Time in which requests are sent."""

    @property
    def length_seconds(self) -> float:
        """Time in which requests are sent."""
        return self.duration_seconds

    def check(self) -> None:
        """Raise ValueError if too many arrivals would be drawn."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        self.check()
        require_bounded(self)
        return self


class ShapedProfile(TimedProfile):
    """A profile that is a rate over time."""

    spacing: Spacing = Field(default="poisson")
    """Arrivals at random about the rate, or evenly along it."""

    def arrivals(self, rng: np.random.Generator) -> Floats:
        """Seconds from the start, by inversion of the integrated rate."""
        return self.curve().arrivals(self.spacing, rng)


def require_bounded(profile: Profile) -> None:
    """Refuse a profile of more requests than a run can have.

    Raises:
        ValueError: it has more.
    """
    expected = profile.curve().expected
    if expected > MAX_REQUESTS:
        raise ValueError(
            f"found {expected:,.0f} requests in {profile.length_seconds:g} s; "
            f"want at most {MAX_REQUESTS:,}"
        )


def within(times: Floats, length_seconds: float) -> Floats:
    """Return the times within the run."""
    return times[: int(np.searchsorted(times, length_seconds, "left"))]


def arrivals_of(profile: Profile, seed: int) -> Floats:
    """Seconds from the start; the same for a profile and a seed on any machine."""
    return profile.arrivals(np.random.default_rng((seed, _ARRIVALS)))


@dataclass(frozen=True, slots=True)
class Phase:
    """A named part of a run, in seconds from its start."""

    name: str
    start_seconds: float
    end_seconds: float
    requests_per_second: float | None
    """The intended mean rate; None where the server sets it."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Requests a second at knots, linear between them.

    `times` (K,) are seconds from 0 that never decrease, `rates` (K,) are at least 0.
    Two knots at one time make a jump.
    """

    times: Floats
    rates: Floats

    @classmethod
    def of(cls, *knots: tuple[float, float]) -> Curve:
        """The curve through (second, rate) pairs."""
        table = np.asarray(knots, np.float64)
        return cls(table[:, 0], table[:, 1])

    @classmethod
    def staircase(cls, phases: Iterable[Phase]) -> Curve:
        """The rate of each phase, all through it."""
        return cls.of(
            *(
                (second, phase.requests_per_second or 0.0)
                for phase in phases
                for second in (phase.start_seconds, phase.end_seconds)
            )
        )

    @classmethod
    def sampled(
        cls, rate: Callable[[Floats], Floats], duration_seconds: float, knots: int
    ) -> Curve:
        """Return a smooth rate as a number of straight pieces."""
        times = np.linspace(0.0, duration_seconds, knots + 1)
        return cls(times, np.maximum(rate(times), 0.0))

    @property
    def expected(self) -> float:
        """The integral: how many arrivals there are on average."""
        return float(self._cumulative()[-1])

    def arrivals(self, spacing: Spacing, rng: np.random.Generator) -> Floats:
        """Seconds at which requests are due.

        By inversion of the integrated rate (Cinlar 1975): a Poisson process of rate 1,
        or for `even` the whole numbers, taken back through it. No thinning, so the
        draws used do not depend on the shape.
        """
        total = self.expected
        if spacing == "even":
            return self.inverse(np.arange(np.ceil(total - 1e-9), dtype=np.float64))
        count = int(rng.poisson(total))
        return self.inverse(np.sort(rng.random(count)) * total)

    def inverse(self, cumulative: Floats) -> Floats:
        """Return the time at which each number of arrivals (N,) is expected."""
        running = self._cumulative()
        last = max(len(running) - 2, 0)
        piece = np.clip(np.searchsorted(running, cumulative, "right") - 1, 0, last)
        left = cumulative - running[piece]
        width = np.diff(self.times)[piece]
        start = self.rates[:-1][piece]
        rise = np.diff(self.rates)[piece]
        # Of r0 x + s x^2 / 2 = u the root that does not cancel where s is small.
        slope = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        root = np.sqrt(np.maximum(start * start + 2.0 * slope * left, 0.0))
        below = start + root
        into = np.divide(2.0 * left, below, out=np.zeros_like(left), where=below > 0)
        found: Floats = self.times[piece] + np.minimum(into, width)
        return found

    def at(self, times: Floats) -> Floats:
        """The rate at each time (N,); 0 before the first and after the last knot."""
        found: Floats = np.interp(times, self.times, self.rates, left=0.0, right=0.0)
        return found

    def _cumulative(self) -> Floats:
        middle = (self.rates[:-1] + self.rates[1:]) / 2.0
        return np.concatenate(([0.0], np.cumsum(middle * np.diff(self.times))))
