"""A profile as a picture: in the terminal, and as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.profiles.profile import arrivals_of
from pages.plots import Axis, Plot, Series

if TYPE_CHECKING:
    from loadtests.profiles.profile import Profile
    from loadtests.profiles.rate_curve import Floats

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_SLICES: Final = 120


def counted(profile: Profile, seed: int, slices: int) -> tuple[Floats, Floats]:
    """Edges (S + 1,) in seconds and the arrivals a second in each slice (S,)."""
    edges = np.linspace(0.0, profile.length_seconds, slices + 1)
    counts = np.histogram(arrivals_of(profile, seed), edges)[0]
    return edges, counts / np.diff(edges)


def line(profile: Profile, seed: int, width: int = 60) -> str:
    """Return a line of blocks as high as the rate, and the rate of the highest."""
    rates = counted(profile, seed, width)[1]
    top = float(rates.max())
    heights = np.ceil(rates / top * (len(_BLOCKS) - 1)).astype(int) if top else rates
    drawn = "".join(_BLOCKS[int(height)] for height in heights)
    return f"{drawn} {profile.length_seconds:g} s, up to {top:.3g}/s"


def plot(profile: Profile, seed: int) -> Plot:
    """The intended rate, and the arrivals drawn with the seed."""
    edges, rates = counted(profile, seed, _SLICES)
    drawn = Series("drawn", np.repeat(edges, 2)[1:-1], np.repeat(rates, 2), "area")
    curve = profile.curve()
    intended = Series("intended", curve.times, curve.rates)
    return Plot(
        title=str(getattr(profile, "kind", "profile")),
        x=Axis("time in seconds"),
        y=Axis("requests a second", low=0.0),
        series=(drawn, intended),
    )
