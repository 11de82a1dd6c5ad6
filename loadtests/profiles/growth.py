"""Organic growth: a service that more people use every day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from loadtests.profiles.base import ShapedProfile
from loadtests.profiles.curve import Curve

if TYPE_CHECKING:
    from loadtests.profiles.curve import Floats

_KNOTS = 512


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
    """Where growth ends; none by default."""

    def shape(self) -> Curve:
        """The curve by many straight pieces."""
        return Curve.sampled(self._rate, self.duration_seconds, _KNOTS)

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
