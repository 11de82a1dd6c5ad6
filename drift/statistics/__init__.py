"""Distances between a window and the reference: effect sizes with their null values.

A distance never raises an alarm by itself, see `drift.alarms`. To add one, write a
module with a `Statistic`, and add it to `STATISTICS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drift.statistics.jensen_shannon import JensenShannon
from drift.statistics.kolmogorov_smirnov import KolmogorovSmirnov
from drift.statistics.psi import Psi
from drift.statistics.wasserstein import Wasserstein

if TYPE_CHECKING:
    from drift.statistics.base import Statistic

STATISTICS: Final[dict[str, Statistic]] = {
    statistic.kind: statistic
    for statistic in (Psi(), JensenShannon(), KolmogorovSmirnov(), Wasserstein())
}
"""Every distance by its kind, in the order of reports."""
