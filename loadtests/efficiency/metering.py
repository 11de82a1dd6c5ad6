"""Reads power continuously, and returns the energy between two instants."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from exporter.access.work_board import WorkBoard
from exporter.errors import TritonError
from exporter.features.energy.energy_meter import MICRO, Meter
from exporter.features.energy.sources.power_source import Surroundings
from exporter.system.background import Background
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from exporter.features.energy.sources import AnySource
    from exporter.features.energy.sources.power_source import Boundary, PowerSource
    from loadtests.scenario import Scenario

_INTERVAL_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Energy of one boundary between two instants."""

    joules: float
    known: bool
    """True if all of the time was measured."""


class PowerMeter(Background):
    """Reads the cumulative energy of all sources from a thread, while its block lasts."""

    def __init__(self, sources: Mapping[Boundary, PowerSource]) -> None:
        super().__init__(end_seconds=_STOP_SECONDS)
        self._sources = sources
        self._meters: dict[tuple[str, str, str], Meter] = {}
        self._totals: dict[str, list[float]] = {name: [] for name in sources}
        self._times: dict[str, list[float]] = {name: [] for name in sources}
        self._gaps: dict[str, list[tuple[float, float]]] = {n: [] for n in sources}
        self._lock = threading.Lock()

    @property
    def sources(self) -> dict[str, str]:
        """Kind of the source, by boundary."""
        return {boundary: source.kind for boundary, source in self._sources.items()}

    @property
    def descriptions(self) -> dict[str, str]:
        """Return a description of each source, by boundary."""
        return {name: source.description for name, source in self._sources.items()}

    def __enter__(self) -> Self:
        self._read()
        return super().__enter__()

    def drawn(self, boundary: str, start: float, end: float) -> Drawn:
        """Joules from `start` to `end`, Unix seconds that have been read past."""
        with self._lock:
            times = np.array(self._times[boundary])
            totals = np.array(self._totals[boundary])
            gaps = list(self._gaps[boundary])
        low, high = np.interp([start, end], times, totals)
        inside = bool(times.size) and times[0] <= start and end <= times[-1]
        whole = all(until <= start or since >= end for since, until in gaps)
        return Drawn(float(high - low), known=inside and whole)

    def wait_past(
        self, instant: float, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until everything was read after that instant, Unix seconds, or `stop`."""
        ahead = max(0.0, instant - time.time())
        deadline = time.monotonic() + ahead + _STOP_SECONDS
        while time.monotonic() < deadline and not stop():
            with self._lock:
                if all(
                    times and times[-1] >= instant for times in self._times.values()
                ):
                    return
            time.sleep(_INTERVAL_SECONDS / 2)

    def _work(self) -> None:
        while not self._over.wait(_INTERVAL_SECONDS):
            self._read()

    def _read(self) -> None:
        for boundary, source in self._sources.items():
            try:
                readings = source.read()
            except TritonError:
                continue
            total, known = 0, True
            for reading in readings:
                meter = self._meters.setdefault(reading.device.labels, Meter())
                meter.add(reading)
                rise, whole = meter.settle(reading.at)
                # Energy that a counter shows after a gap belongs into that gap.
                total += rise + meter.pop_late()
                known &= whole
            self._note(boundary, time.time(), total / MICRO, known=known)

    def _note(self, boundary: str, at: float, joules: float, *, known: bool) -> None:
        with self._lock:
            times, totals = self._times[boundary], self._totals[boundary]
            if not known and times:
                self._gaps[boundary].append((times[-1], at))
            totals.append((totals[-1] if totals else 0.0) + joules)
            times.append(at)


@dataclass(frozen=True, slots=True)
class MeteredRun:
    """A scenario whose power is read."""

    scenario: Scenario
    concurrency: int
    """Requests in flight at full load."""
    meter: PowerMeter
    stop: Callable[[], bool]
    """True ends it with its present result."""
    log: Callable[[str], None]


@contextlib.contextmanager
def metered(sources: Sequence[AnySource]) -> Generator[PowerMeter]:
    """The first source of each boundary that this machine has, read for the block.

    Raises:
        PlanError: it has none of them.
    """
    surroundings = Surroundings(time.monotonic, time.time, None, WorkBoard())
    found: dict[Boundary, PowerSource] = {}
    for settings in sources:
        if settings.boundary not in found:
            source = settings.find(surroundings)
            if source is not None:
                found[settings.boundary] = source
    if not found:
        raise PlanError(
            "found no power source: no NVML, no readable RAPL; set the machine's "
            "power with --idle-watts and --full-watts, or sources with --config"
        )
    with contextlib.ExitStack() as stack:
        for each in found.values():
            stack.callback(each.close)
        yield stack.enter_context(PowerMeter(found))
