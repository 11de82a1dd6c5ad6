"""Linux powercap: energy counters of CPU packages and their memory (RAPL).

Counters are microjoules and start at 0 again after `max_energy_range_uj`. They are
readable by root alone on most kernels (CVE-2020-8694). `psys` and the domains inside a
package (core, uncore) would count the same energy twice and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import structlog
from pydantic import Field

from exporter.features.energy.sources.power_source import (
    Device,
    Reading,
    SourceSettings,
    Surroundings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporter.features.energy.sources.power_source import Boundary, Fault

log = structlog.get_logger()

_MICRO: Final = 1_000_000
_MOST_BYTES: Final = 256
_MOST_ZONES: Final = 256
# Idle power of a package's memory as a part of its own: more than it draws would be idle
# energy that the package lacks, so rather too little.
_DRAM_WEIGHT: Final = 0.15


Watts = Annotated[float, Field(ge=0, le=1_000_000)]


class RaplSettings(SourceSettings):
    """CPU packages and DRAM, through the powercap interface of Linux."""

    kind: Literal["rapl"] = "rapl"
    root: Path = Field(default=Path("/sys/class/powercap"))
    """Folder of the powercap interface. In a container, its mount point."""
    idle_watts: Watts | dict[str, Watts] | None = Field(default=None)
    """Power while nothing runs: of all domains together, or by domain (`package-0`,
    `dram-0`), which is exact. Learnt if not set, or for a domain that is not named.
    """

    @property
    def boundary(self) -> Boundary:
        """The host."""
        return "host"

    def find(self, surroundings: Surroundings) -> RaplPower | None:
        """The source, where the kernel has RAPL zones, readable or not."""
        zones = list(_zones(self.root))
        domains = [zone.domain for zone in zones]
        named = self.idle_watts if isinstance(self.idle_watts, dict) else {}
        if zones and (unknown := named.keys() - set(domains)):
            log.warning("rapl_domain_unknown", domains=sorted(unknown), has=domains)
        return RaplPower(self, zones, surroundings) if zones else None


@dataclass(frozen=True, slots=True)
class Zone:
    """One domain: its folder and its constants."""

    folder: Path
    domain: str
    wraps_at: int | None
    max_watts: float | None


class RaplPower:
    """Reads every zone's counter."""

    kind = "rapl"

    def __init__(
        self, settings: RaplSettings, zones: Sequence[Zone], surroundings: Surroundings
    ) -> None:
        self._zones = [
            (
                zone,
                Device(
                    "host",
                    self.kind,
                    zone.domain,
                    index=zone.domain,
                    name=zone.domain,
                    idle_watts=_idle_watts(settings.idle_watts, zone, zones),
                    max_watts=zone.max_watts,
                ),
            )
            for zone in zones
        ]
        self._clock = surroundings.clock

    @property
    def description(self) -> str:
        """Description for the log."""
        return f"RAPL {', '.join(zone.domain for zone, _ in self._zones)}"

    def read(self) -> Sequence[Reading]:
        """Read every domain; without permission or on an error it has a fault."""
        readings = []
        for zone, device in self._zones:
            counter: int | None = None
            faults: frozenset[Fault] = frozenset()
            try:
                counter = _number(zone.folder / "energy_uj")
            except PermissionError:
                faults = frozenset({"permission_denied"})
            except (OSError, ValueError):
                faults = frozenset({"unreadable"})
            readings.append(
                Reading(device, self._clock(), counter, zone.wraps_at, faults=faults)
            )
        return readings

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _idle_watts(
    configured: float | Mapping[str, float] | None, zone: Zone, zones: Sequence[Zone]
) -> float | None:
    """Return the idle power of a domain, from that of all or by domain."""
    if configured is None:
        return None
    if not isinstance(configured, int | float):
        return configured.get(zone.domain)
    weights = {z.domain: _weight(z) for z in zones}
    return configured * weights[zone.domain] / sum(weights.values())


def _weight(zone: Zone) -> float:
    return 1.0 if zone.domain.startswith("package-") else _DRAM_WEIGHT


def _zones(root: Path) -> Iterator[Zone]:
    """Packages and their DRAM, in the kernel's order."""
    try:
        folders = sorted(root.glob("intel-rapl*:*"))[:_MOST_ZONES]
    except OSError:
        return
    seen: dict[str, int] = {}
    for folder in folders:
        # intel-rapl-mmio:0 is the same package by another road.
        if not folder.name.startswith("intel-rapl:"):
            continue
        name = _text(folder / "name")
        parent = folder.name.split(":")[1]
        if name.startswith("package-"):
            domain = name
        elif name == "dram":
            domain = f"dram-{parent}"
        else:
            continue
        seen[domain] = seen.get(domain, 0) + 1
        if seen[domain] == 1:
            yield Zone(
                folder,
                domain,
                _number_or_none(folder / "max_energy_range_uj"),
                _max_watts(folder),
            )


def _max_watts(folder: Path) -> float | None:
    # Constraint 0 is the long-term limit, or the nominal power, which turbo exceeds for
    # as long as constraint 1 allows. DRAM has none, or 0.
    limits = [
        _number_or_none(folder / f"constraint_{number}_{kind}_uw") or 0
        for number in (0, 1)
        for kind in ("max_power", "power_limit")
    ]
    return max(limits) / _MICRO or None


def _number_or_none(path: Path) -> int | None:
    try:
        return _number(path)
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int:
    text = _read(path)
    if not text.isdecimal():
        raise ValueError(f"found {text!r} in {path}; want a whole number")
    return int(text)


def _text(path: Path) -> str:
    try:
        return _read(path)
    except OSError:
        return ""


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("ascii", "replace").strip()
