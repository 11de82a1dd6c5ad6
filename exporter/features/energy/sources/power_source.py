"""The base of power sources: their settings, and the environment they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.access.work_board import WorkBoard
    from exporter.features.energy.power_readings import Boundary, PowerSource
    from exporter.triton.http import HttpClient


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clocks and clients that a source may use."""

    clock: Callable[[], float]
    """Monotonic seconds."""
    wall_clock: Callable[[], float]
    metrics: HttpClient | None
    """Triton's own metrics page."""
    work: WorkBoard
    timeout_seconds: float = 1.0


class SourceSettings(Settings):
    """Settings that every power source has."""

    @property
    def boundary(self) -> Boundary:
        """Return the boundary it measures."""
        raise NotImplementedError

    def find(self, surroundings: Surroundings) -> PowerSource | None:
        """The source, if this machine has it; cheap where it does not."""
        raise NotImplementedError
