"""The base of every load profile: settings that define when requests are due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from exporter.settings import Settings
from loadtests.plan import MAX_REQUESTS
from loadtests.profiles.rate_curve import Curve, Phase, Spacing

if TYPE_CHECKING:
    from loadtests.profiles.rate_curve import Floats

_ARRIVALS = 3  # beside the streams of `loadtests.plan`


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
