"""Power where there is no sensor: a straight line from idle to full use.

A model, not a measurement, and labelled as such. The power of real servers is not
linear (see SPECpower's results), and the CPU causes only part of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from exporter.features.energy.sources.power_source import (
    Device,
    Reading,
    SourceSettings,
    Surroundings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.features.energy.sources.power_source import Boundary

_MICRO = 1_000_000


class ModelSettings(SourceSettings):
    """Power estimated from utilisation, for a machine without a sensor."""

    kind: Literal["model"] = "model"
    idle_watts: float = Field(gt=0, le=1_000_000)
    """Power while nothing runs."""
    full_watts: float = Field(gt=0, le=1_000_000)
    """Power at full utilisation."""
    measures: Literal["gpu", "host"] = Field(default="host")
    """The boundary whose power is estimated."""
    use: Literal["cpu", "busy"] = Field(default="cpu")
    """Measure of utilisation. `cpu`: CPU time of this host. `busy`: busy seconds of the
    models, for a server on another host."""
    parallel: int = Field(default=1, ge=1, le=10_000)
    """With `use: busy`: number of concurrently busy models that corresponds to full
    utilisation."""

    @model_validator(mode="after")
    def _rises(self) -> ModelSettings:
        if self.full_watts < self.idle_watts:
            raise ValueError(
                f"found idle_watts {self.idle_watts:g} above full_watts "
                f"{self.full_watts:g}; want less than full_watts"
            )
        return self

    @property
    def boundary(self) -> Boundary:
        """The configured boundary."""
        return self.measures

    def find(self, surroundings: Surroundings) -> ModelledPower | None:
        """Return the model; with `use: cpu` only where the kernel reports CPU time."""
        if self.use == "cpu" and not _STAT.exists():
            return None
        return ModelledPower(self, surroundings)


_STAT = Path("/proc/stat")


class ModelledPower:
    """A counter that rises with use."""

    kind = "model"

    def __init__(self, settings: ModelSettings, surroundings: Surroundings) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._device = Device(
            settings.measures,
            self.kind,
            "modelled",
            index="modelled",
            name="modelled",
            idle_watts=settings.idle_watts,
            max_watts=settings.full_watts,
        )
        self._total = 0.0
        self._before: tuple[float, float, float] | None = None
        self._reading: Reading | None = None

    @property
    def description(self) -> str:
        """Description for the log."""
        low, high = self._settings.idle_watts, self._settings.full_watts
        return f"modelled from {self._settings.use} time, {low:g} W to {high:g} W"

    def read(self) -> Sequence[Reading]:
        """Power over the time since the last call, taken from use over that time."""
        seen = self._use()
        if seen is None:
            return ()
        if self._reading is not None and seen[0] <= self._reading.at:
            return (self._reading,)
        at, used, possible = seen
        watts = self._settings.idle_watts
        if self._before is not None:
            at_before, used_before, possible_before = self._before
            could = possible - possible_before
            ratio = (used - used_before) / could if could > 0 else 0.0
            span = self._settings.full_watts - self._settings.idle_watts
            watts += span * min(1.0, max(0.0, ratio))
            self._total += watts * (at - at_before) * _MICRO
        self._before = seen
        self._reading = Reading(self._device, at, round(self._total), power_watts=watts)
        return (self._reading,)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def _use(self) -> tuple[float, float, float] | None:
        """Return the time, the use until then, and the possible use."""
        if self._settings.use == "cpu":
            at = self._surroundings.clock()
            busy, whole = _cpu_ticks(_STAT.read_text("ascii"))
            return at, busy, whole
        snapshot = self._surroundings.work.current
        if snapshot is None:
            return None
        busy = sum(
            work.busy_seconds
            for work in snapshot.models.values()
            if not work.is_ensemble
        )
        return snapshot.at, busy, snapshot.at * self._settings.parallel


def _cpu_ticks(stat: str) -> tuple[float, float]:
    """Ticks at work and ticks in all since boot, over all CPUs."""
    # user nice system idle iowait irq softirq steal; guest is in user already.
    ticks = [float(field) for field in stat.split("\n", 1)[0].split()[1:9]]
    idle = sum(ticks[3:5])
    return sum(ticks) - idle, sum(ticks)
