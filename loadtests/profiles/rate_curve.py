"""An intended rate over time, and arrivals that follow it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Spacing = Literal["poisson", "even"]


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
