"""Reads power, keeps energy accounts, and exposes energy and cost per inference.

Until a source is found nothing else of this package is imported: a sidecar on a machine
without sensors pays next to nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from exporter.features.energy.sources.power_source import Surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access
    from exporter.features.energy.energy_ledger import Ledger
    from exporter.features.energy.energy_settings import EnergySettings
    from exporter.features.energy.sources.power_source import Boundary, PowerSource
    from exporter.samples import AnySample

log = structlog.get_logger()

_SEARCH_SECONDS: Final = 60.0


class EnergyCollector:
    """Finds a source for each boundary, and reads it."""

    def __init__(self, settings: EnergySettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._surroundings = Surroundings(
            clock=access.clock,
            wall_clock=time.time,
            metrics=access.metrics,
            work=access.work,
            timeout_seconds=settings.timeout_seconds,
        )
        self._sources: dict[Boundary, PowerSource] = {}
        self._ledger: Ledger | None = None
        self._searched_at: float | None = None

    def collect(self) -> Sequence[AnySample]:
        """Read every source once."""
        now = self._access.clock()
        if self._searched_at is None or now - self._searched_at >= _SEARCH_SECONDS:
            self._searched_at = now
            self._find_sources()
        if self._ledger is None:
            return ()
        return self._ledger.advance(self._sources.values())

    def close(self) -> None:
        """Release the sources' resources."""
        for source in self._sources.values():
            source.close()

    def _find_sources(self) -> None:
        for settings in self._settings.sources:
            if settings.boundary in self._sources:
                continue
            source = settings.find(self._surroundings)
            if source is None:
                continue
            log.info(
                "power_source",
                boundary=settings.boundary,
                source=settings.kind,
                found=source.description,
            )
            self._sources[settings.boundary] = source
        if self._sources and self._ledger is None:
            from exporter.features.energy.energy_ledger import Ledger  # noqa: PLC0415 - see above

            self._ledger = Ledger(self._settings, self._access)
