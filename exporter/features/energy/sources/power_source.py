"""Power sources: their devices and readings, their settings, and the environment they are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exporter.access.work_board import WorkBoard
    from exporter.samples import AnySample
    from exporter.triton.http import HttpClient

Boundary = Literal["gpu", "host"]
Fault = Literal[
    "lost",
    "driver_gone",
    "permission_denied",
    "unreadable",
    "frozen",
    "backwards",
    "implausible",
    "no_power",
]
ReadingKind = Literal["counter", "integrated_instant", "integrated_average", "none"]


@dataclass(frozen=True, slots=True)
class Device:
    """A unit whose energy is measured as one: a board, a package, a host."""

    boundary: Boundary
    source: str
    """`kind` of the source that reads it."""
    key: str
    """Unique within the boundary: a GPU's uuid, a RAPL domain."""
    index: str = ""
    name: str = ""
    idle_watts: float | None = None
    """Idle power, where that is configured."""
    max_watts: float | None = None
    """Maximum power: its power limit."""
    instances: tuple[str, ...] = ()
    """uuids of its MIG instances."""
    update_seconds: float = 0.6
    """A counter that stays constant for more than 1.5 times its usual interval is frozen."""

    @property
    def labels(self) -> tuple[str, str, str]:
        """boundary, source, device."""
        return self.boundary, self.source, self.key


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one device. None means that a value could not be read, not zero."""

    device: Device
    at: float
    """Monotonic seconds."""
    counter_microjoules: int | None = None
    """Cumulative; starts anywhere."""
    wraps_at_microjoules: int | None = None
    """Highest value before the counter starts at 0 again."""
    power_watts: float | None = None
    """Power at this instant."""
    average_watts: float | None = None
    """Mean power over the second before."""
    utilization_ratio: float | None = None
    faults: frozenset[Fault] = frozenset()
    """Faults that the source itself reports; the other values are then not used."""
    samples: Sequence[AnySample] = field(default=())
    """Other values of the device: clocks, memory, temperature."""


class PowerSource(Protocol):
    """One way to read power. Used by one thread."""

    @property
    def kind(self) -> str:
        """Kind of the source, as in the configuration."""
        ...

    @property
    def description(self) -> str:
        """Return a description for the log."""
        ...

    def read(self) -> Sequence[Reading]:
        """Read every device once.

        A device that cannot be read has its fault in its reading.

        Raises:
            TritonError: the server did not answer.
        """
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


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
        """The source, if this machine has it, readable or not; cheap where it does not.

        Raises:
            TritonError: the server cannot be asked whether it has it.
        """
        raise NotImplementedError
