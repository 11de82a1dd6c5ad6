"""Power of the machine while production is observed, from the first source found."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.errors import TritonError
from exporter.features.energy.sources.power_source import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.access.collector_base import Access
    from exporter.features.energy.energy_meter import Meter
    from exporter.features.energy.energy_settings import PowerSettings
    from exporter.features.energy.power_readings import PowerSource


@dataclass(frozen=True, slots=True)
class Taken:
    """Energy of all devices of one boundary over the window."""

    boundary: str
    source: str
    joules: float
    seconds: float
    known: bool
    """True if all of it was measured; else it is a lower bound."""


class PowerLook:
    """Reads power on request, between `begin` and `end`."""

    def __init__(
        self, settings: PowerSettings | None, access: Access, clock: Callable[[], float]
    ) -> None:
        self._sources: dict[str, PowerSource] = {}
        self._meters: dict[tuple[str, str, str], Meter] = {}
        self._began = 0.0
        self._clock = clock
        surroundings = Surroundings(clock, time.time, access.metrics, access.work)
        for wanted in settings.sources if settings is not None else ():
            # Triton's gauges are on the page, which is read anyway.
            if wanted.kind != "triton" and wanted.boundary not in self._sources:
                source = wanted.find(surroundings)
                if source is not None:
                    self._sources[wanted.boundary] = source

    def begin(self) -> None:
        """The window begins."""
        self._began = self._clock()
        self.read()

    def read(self) -> None:
        """Read every source once."""
        if not self._sources:
            return
        from exporter.features.energy.energy_meter import Meter  # noqa: PLC0415 - only with a source

        for source in self._sources.values():
            try:
                readings = source.read()
            except TritonError:
                continue
            for reading in readings:
                labels = reading.device.labels
                self._meters.setdefault(labels, Meter()).add(reading)

    def end(self) -> tuple[Taken, ...]:
        """End the window; return the energy of each boundary in it."""
        self.read()
        for source in self._sources.values():
            source.close()
        taken: dict[tuple[str, str], Taken] = {}
        for (boundary, source_name, _), meter in self._meters.items():
            microjoules, known = meter.take(meter.read_until or 0.0)
            joules = (microjoules + meter.take_late()) / 1e6
            before = taken.get((boundary, source_name))
            seconds = (meter.read_until or self._began) - self._began
            taken[boundary, source_name] = Taken(
                boundary,
                source_name,
                joules + (before.joules if before else 0.0),
                max(seconds, before.seconds if before else 0.0),
                known and (before is None or before.known),
            )
        return tuple(item for item in taken.values() if item.joules > 0)
