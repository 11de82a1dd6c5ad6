"""Load profiles: when requests are due, one seeded module each.

A profile is a settings model with `kind` and `arrivals`, and one line in `AnyProfile`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loadtests.profiles.constant import Constant
from loadtests.profiles.diurnal import Diurnal
from loadtests.profiles.gamma import Gamma
from loadtests.profiles.growth import Growth
from loadtests.profiles.mlperf import (
    MlperfMultiStream,
    MlperfOffline,
    MlperfServer,
    MlperfSingleStream,
)
from loadtests.profiles.on_off import OnOff
from loadtests.profiles.poisson import Poisson
from loadtests.profiles.replay import Replay
from loadtests.profiles.soak import Soak
from loadtests.profiles.specpower import SpecPower
from loadtests.profiles.spike import Spike
from loadtests.profiles.steps import Steps

AnyProfile = Annotated[
    Constant
    | Diurnal
    | Gamma
    | Growth
    | MlperfMultiStream
    | MlperfOffline
    | MlperfServer
    | MlperfSingleStream
    | OnOff
    | Poisson
    | Replay
    | Soak
    | SpecPower
    | Spike
    | Steps,
    Field(discriminator="kind"),
]
