"""Distances between a window and the reference: effect sizes with their null values.

A distance never raises an alarm by itself, see `drift.alarms`. To add one, write a
module with a `Statistic` that has a `kind`, and add it to `AnyStatistic`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from drift.statistics.jensen_shannon import JensenShannon
from drift.statistics.kolmogorov_smirnov import KolmogorovSmirnov
from drift.statistics.psi import Psi
from drift.statistics.wasserstein import Wasserstein

AnyStatistic = Annotated[
    JensenShannon | KolmogorovSmirnov | Psi | Wasserstein,
    Field(discriminator="kind"),
]

__all__ = [
    "AnyStatistic",
    "JensenShannon",
    "KolmogorovSmirnov",
    "Psi",
    "Wasserstein",
]
