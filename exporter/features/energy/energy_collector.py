"""Reads power, keeps energy accounts, and exposes energy and cost per inference.

Until a source is found nothing else of this package is imported: a sidecar on a machine
without sensors pays next to nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, get_args

import structlog

from exporter.errors import TritonError
from exporter.features.energy.sources.power_source import Boundary, Surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access
    from exporter.features.energy.energy_ledger import Ledger
    from exporter.features.energy.energy_settings import EnergySettings
    from exporter.features.energy.sources.power_source import PowerSource
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
        for boundary in get_args(Boundary):
            if boundary in self._sources:
                continue
            source = self._found(boundary)
            if source is None:
                continue
            log.info(
                "power_source",
                boundary=boundary,
                source=source.kind,
                found=source.description,
            )
            self._sources[boundary] = source
        if self._sources and self._ledger is None:
            from exporter.features.energy.energy_ledger import Ledger  # noqa: PLC0415 - see above

            self._ledger = Ledger(self._settings, self._access)

    def _found(self, boundary: Boundary) -> PowerSource | None:
        """Return the first source that can be read, or else the first that exists."""
        unreadable: PowerSource | None = None
        for settings in self._settings.sources:
            if settings.boundary != boundary:
                continue
            try:
                source = settings.find(self._surroundings)
            except TritonError:
                if self._access.board.current.up:
                    continue
                # It is preferred to the next ones: the server may still be starting.
                break
            if source is None:
                continue
            if _is_readable(source):
                if unreadable is not None:
                    log.warning(
                        "power_source_unreadable",
                        boundary=boundary,
                        source=unreadable.kind,
                        instead=source.kind,
                    )
                    unreadable.close()
                return source
            if unreadable is None:
                unreadable = source
            else:
                source.close()
        return unreadable


def _is_readable(source: PowerSource) -> bool:
    try:
        readings = source.read()
    except TritonError:
        return False
    return not readings or any(not reading.faults for reading in readings)
