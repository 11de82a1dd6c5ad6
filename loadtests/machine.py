"""Other load on a machine: processors, pressure, steal and clocks, from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporter.system.processes import family_of, listening_on

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICK: Final = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS: Final = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
_STEAL_FIELD: Final = 7


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one instant, in seconds since some start; None where unknown."""

    monotonic: float
    wall: float
    busy: float | None
    """Processor time of everything on the machine."""
    steal: float | None
    """Processor time that the hypervisor gave to others."""
    ours: float
    """Processor time of the sender, its children included."""
    server: float | None
    """Processor time of the server, where it runs on this machine."""
    pressure: float | None
    """Time in which something that could run had to wait for a processor (PSI)."""


def read(server: Iterable[int] = ()) -> Reading:
    """All counters now. `server` are the processes of the server."""
    busy, steal = _processors()
    spent = os.times()
    pids = tuple(server)
    return Reading(
        monotonic=time.monotonic(),
        wall=time.time(),
        busy=busy,
        steal=steal,
        ours=spent.user + spent.system + spent.children_user + spent.children_system,
        server=sum(_cpu_seconds(pid) for pid in pids) if pids else None,
        pressure=_pressure(),
    )


def _processors() -> tuple[float | None, float | None]:
    try:
        line = Path("/proc/stat").read_text("ascii").partition("\n")[0]
    except OSError:
        return None, None
    ticks = [int(part) / _TICK for part in line.split()[1:]]
    return sum(ticks[i] for i in _BUSY_FIELDS), ticks[_STEAL_FIELD]


def _pressure() -> float | None:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        text = Path("/proc/pressure/cpu").read_text("ascii")
        some = next(line for line in text.splitlines() if line.startswith("some"))
        return int(some.rpartition("total=")[2]) / 1e6
    return None


def _cpu_seconds(pid: int) -> float:
    """Of a process and the children it has waited for; 0 when it is gone."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return sum(int(field) for field in stat[11:15]) / _TICK
    return 0.0


def listeners(port: int) -> tuple[int, ...]:
    """The processes that listen on a TCP port of this machine, and their descendants.

    Empty where there are none, or where they are not ours to see.
    """
    found = listening_on(port)
    return tuple(sorted(family_of(found) - {os.getpid()})) if found else ()
