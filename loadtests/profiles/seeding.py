"""From a profile and a seed to the same arrivals, wherever they are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from loadtests.profiles.base import Profile
    from loadtests.profiles.curve import Floats

_ARRIVALS = 3  # beside the streams of `loadtests.plan`


def arrivals_of(profile: Profile, seed: int) -> Floats:
    """Seconds from the start; the same for the same profile and seed on any machine."""
    return profile.arrivals(np.random.default_rng((seed, _ARRIVALS)))
