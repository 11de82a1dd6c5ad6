"""Detects that a measurement was disturbed, as reasons and warnings.

Other load on the machine is read from /proc: processors, pressure, steal and clocks.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pydantic import Field

from exporter.settings import Settings
from exporter.system.background import Background
from exporter.system.processes import (
    family_of,
    is_local,
    listening_on,
    name_of,
    stat_of,
)
from loadtests.result import Verdict
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtests.result import RunResult
    from loadtests.target import Target

_TICK: Final = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS: Final = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
_STEAL_FIELD: Final = 7
_TICK_SECONDS: Final = 0.02  # the resolution of /proc is too low for shorter times
_MOST_READINGS: Final = 100_000
_END_SECONDS: Final = 5.0
_FORWARDERS: Final = frozenset(
    {
        *("docker-proxy", "rootlesskit", "rootlessport", "slirp4netns", "pasta"),
        *("kubectl", "ssh"),
    }
)
"""Programs that listen for a server elsewhere; some add the processor (`pasta.avx2`)."""


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
    """Return all counters. `server` are the processes of the server."""
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
    """Return CPU time of a process and its reaped children; 0 when it has ended."""
    fields = stat_of(pid) or ()
    return sum(int(field) for field in fields[11:15]) / _TICK


def listeners(port: int) -> tuple[int, ...]:
    """The processes that listen on a TCP port of this machine, and their descendants.

    Empty where there are none, where they are not visible, or where the server is in a
    container whose port another program forwards.
    """
    found = listening_on(port)
    names = {(name_of(pid) or "").partition(".")[0] for pid in found}
    if names & _FORWARDERS:
        return ()
    return tuple(sorted(family_of(found) - {os.getpid()})) if found else ()


class GuardLimits(Settings):
    """Limits of disturbances, above which a measurement is invalid."""

    window_seconds: float = Field(default=1.0, gt=0.1, le=60)
    """Length of the windows that are judged one by one."""
    other_cpu_ratio: float = Field(default=0.08, gt=0, le=64)
    """Limit of others' processor time in a window, 1 being a core."""
    steal_ratio: float = Field(default=0.02, gt=0, le=1)
    """Limit of the time that the hypervisor steals in a window, 1 being a core."""
    pressure_ratio: float = Field(default=0.5, gt=0, le=1)
    """Limit of the share of a window in which a task waited for a processor; a warning.
    """
    sender_cpu_ratio: float = Field(default=0.8, gt=0, le=1)
    """Limit of the sender's processor time in a window, 1 being a core."""
    clock_step_seconds: float = Field(default=0.005, gt=0, le=60)
    """Limit of the wall clock's change against the monotonic one in a window."""
    rejected_ratio: float = Field(default=0.25, gt=0, le=1)
    """Share of disturbed windows above which a run is invalid."""


@dataclass(frozen=True, slots=True)
class Window:
    """Shares of one window, 1 being a core; None where unknown."""

    start_seconds: float
    end_seconds: float
    other_cpu: float | None
    steal: float | None
    pressure: float | None
    sender_cpu: float
    server_cpu: float | None
    clock_step_seconds: float

    def disturbance(self, limits: GuardLimits) -> str | None:
        """Return the reason against this window."""
        if self.other_cpu is not None and self.other_cpu > limits.other_cpu_ratio:
            return "other processes"
        if self.steal is not None and self.steal > limits.steal_ratio:
            return "stolen processor time"
        if abs(self.clock_step_seconds) > limits.clock_step_seconds:
            return "a step of the clock"
        if self.sender_cpu > limits.sender_cpu_ratio:
            return "a busy sender"
        return None


@dataclass(frozen=True, slots=True)
class Watch:
    """The windows of a run."""

    windows: tuple[Window, ...]
    limits: GuardLimits

    @property
    def disturbed(self) -> dict[str, int]:
        """Return the number of disturbed windows by kind of disturbance."""
        found: dict[str, int] = {}
        for window in self.windows:
            kind = window.disturbance(self.limits)
            if kind is not None:
                found[kind] = found.get(kind, 0) + 1
        return found

    def between(self, start_seconds: float, end_seconds: float) -> Watch:
        """Return the windows that overlap that time."""
        inside = tuple(
            window
            for window in self.windows
            if window.end_seconds > start_seconds and window.start_seconds < end_seconds
        )
        return replace(self, windows=inside)

    def mean(self, name: str) -> float | None:
        """The mean of one of the shares over the windows in which it is known."""
        known = [getattr(w, name) for w in self.windows if getattr(w, name) is not None]
        return sum(known) / len(known) if known else None

    def verdict(self) -> Verdict:
        """Return reasons where too much was disturbed, warnings where something was."""
        whole, limits = len(self.windows), self.limits
        if not whole:
            text = "the machine was not watched: the run was too short"
            return Verdict(warnings=(text,))
        found = tuple(
            f"{kind} disturbed {count} of {whole} windows of "
            f"{limits.window_seconds:g} s{_detail(kind, self)}"
            for kind, count in sorted(self.disturbed.items())
        )
        if sum(self.disturbed.values()) > limits.rejected_ratio * whole:
            return Verdict(reasons=found)
        return Verdict(warnings=found + _pressed(self))


def _detail(kind: str, watch: Watch) -> str:
    if kind == "other processes":
        mean = watch.mean("other_cpu") or 0.0
        limit = watch.limits.other_cpu_ratio
        return f" (they took {percent(mean)} of a core on average; {percent(limit)} do no harm)"
    if kind == "stolen processor time":
        return f" ({percent(watch.mean('steal') or 0.0)} of a core on average)"
    if kind == "a busy sender":
        mean = watch.mean("sender_cpu") or 0.0
        return f" (it took {percent(mean)} of a core; share the load out over more senders)"
    return ""


def _pressed(watch: Watch) -> tuple[str, ...]:
    mean = watch.mean("pressure")
    if mean is None or mean <= watch.limits.pressure_ratio:
        return ()
    return (
        (
            f"a process waited for a CPU for {percent(mean)} of the time (limit: "
            f"{percent(watch.limits.pressure_ratio)}), and latencies include that wait"
        ),
    )


def windows_of(readings: Sequence[Reading], origin: float) -> tuple[Window, ...]:
    """The time between each two readings, in seconds since `origin` (monotonic)."""
    found = []
    for before, after in pairwise(readings):
        length = after.monotonic - before.monotonic
        if length <= _TICK_SECONDS:
            continue
        ours = (after.ours - before.ours) / length
        server = _rise(before.server, after.server, length)
        busy = _rise(before.busy, after.busy, length)
        other = None if busy is None else max(busy - ours - (server or 0.0), 0.0)
        found.append(
            Window(
                start_seconds=before.monotonic - origin,
                end_seconds=after.monotonic - origin,
                other_cpu=other,
                steal=_rise(before.steal, after.steal, length),
                pressure=_rise(before.pressure, after.pressure, length),
                sender_cpu=ours,
                server_cpu=server,
                clock_step_seconds=(after.wall - before.wall) - length,
            )
        )
    return tuple(found)


def _rise(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / seconds


class Guard(Background):
    """Watches the machine from a thread while the block runs.

    Where the server runs on this machine its processes are found by the port they
    listen on, and their processor time is not that of others.
    """

    def __init__(
        self,
        target: Target | None,
        limits: GuardLimits,
        *,
        server: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(end_seconds=_END_SECONDS)
        self._limits = limits
        self._server = server_of(target) if server is None else server
        self._local = target is not None and is_local(target.address)
        self._readings: list[Reading] = []

    def __enter__(self) -> Self:
        self._readings.append(read(self._server))
        return super().__enter__()

    def watch(self, origin: float | None = None) -> Watch:
        """Return the observations so far; `origin` is monotonic, the start by default."""
        readings = list(self._readings)
        start = readings[0].monotonic if origin is None else origin
        windows = windows_of(readings, start)
        if self._local and not self._server:
            # The server is among the other processes, whose time is then unknown.
            windows = tuple(replace(window, other_cpu=None) for window in windows)
        return Watch(windows, self._limits)

    def _work(self) -> None:
        while not self._over.wait(self._limits.window_seconds):
            if len(self._readings) < _MOST_READINGS:
                self._readings.append(read(self._server))


def guarded(result: RunResult, watch: Watch, *, strict: bool) -> RunResult:
    """Return the result with the machine's windows in its verdict.

    Where it is not `strict`, reasons become warnings: the run stays valid.
    """
    verdict = watch.verdict()
    if not strict:
        return result.warned(*verdict.reasons, *verdict.warnings)
    return result.invalid(*verdict.reasons).warned(*verdict.warnings)


def server_of(target: Target | None) -> tuple[int, ...]:
    """The processes of a server on this machine; empty for one elsewhere."""
    if target is None or not is_local(target.address):
        return ()
    port = target.address.rpartition(":")[2]
    return listeners(int(port)) if port.isdigit() else ()
