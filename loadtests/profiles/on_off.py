"""Requests that come in spells."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from loadtests.profiles.base import Phase, ShapedProfile
from loadtests.profiles.curve import Curve

_MOST_SPELLS = 100_000


class OnOff(ShapedProfile):
    """A rate for a while, another for a while, and again."""

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

    def shape(self) -> Curve:
        """A square wave that begins with a spell."""
        phases = self.phases()
        return Curve.of(
            *(
                (second, phase.requests_per_second or 0.0)
                for phase in phases
                for second in (phase.start_seconds, phase.end_seconds)
            )
        )

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
