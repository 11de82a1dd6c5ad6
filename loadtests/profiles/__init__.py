"""Load profiles: when requests are due, drawn from a seed.

A profile is a settings model with `kind` and `arrivals`, and one line in `AnyProfile`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loadtests.profiles.rate_profiles import (
    Constant,
    Diurnal,
    Gamma,
    Growth,
    OnOff,
    Poisson,
    Soak,
    SpecPower,
    Spike,
    Steps,
)
from loadtests.profiles.replay import Replay

AnyProfile = Annotated[
    Constant
    | Diurnal
    | Gamma
    | Growth
    | OnOff
    | Poisson
    | Replay
    | Soak
    | SpecPower
    | Spike
    | Steps,
    Field(discriminator="kind"),
]
