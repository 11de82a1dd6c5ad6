"""Duration of each target's current request, without the reads before and after it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Target


@dataclass(slots=True)
class _Flight:
    sent: float
    ended: float | None = None


class RequestFlights:
    """Times the latest request of each target, one at a time. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._flights: dict[Target, _Flight] = {}

    @contextlib.contextmanager
    def under_way(self, target: Target) -> Generator[None]:
        """Time what the block sends."""
        flight = self._flights[target] = _Flight(self._clock())
        try:
            yield
        finally:
            flight.ended = self._clock()

    def waited_seconds(self, target: Target) -> float:
        """Return how long the latest request has been or was under way; 0 without one."""
        flight = self._flights.get(target)
        if flight is None:
            return 0.0
        ended = flight.ended
        return (self._clock() if ended is None else ended) - flight.sent

    def forget(self, target: Target) -> None:
        """Forget the latest request."""
        self._flights.pop(target, None)

    def keep(self, models: Collection[ModelKey]) -> None:
        """Forget the ended requests to all other models."""
        for target, flight in list(self._flights.items()):
            if target.key not in models and flight.ended is not None:
                self.forget(target)
