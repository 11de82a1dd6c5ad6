"""Resources that run short: CPU, memory and descriptors, by neighbours or by limits."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from exporter.system.processes import resident_bytes
from loadtests.chaos.faults.fault import (
    Fault,
    FaultFailedError,
    FaultRefusedError,
    SustainedFault,
)
from loadtests.chaos.faults.needs import server_of, sidecar_of
from loadtests.chaos.primitives.cgroups import Group
from loadtests.chaos.primitives.process_refs import ProcessRef, new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

_SLICE_SECONDS: Final = 0.05
_SPIN: Final = range(2000)
MOST_PERCENT: Final = 80.0
"""Limit of the available memory that a neighbour may take, in percent."""
_CHUNK_BYTES: Final = 16 << 20
_POLL_SECONDS: Final = 0.2
_RETURN_SECONDS: Final = 5.0
_HELD_RATIO: Final = 0.9
_MEMINFO: Final = Path("/proc/meminfo")
_PERIOD_MICROSECONDS: Final = 100_000
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED: Final = {
    "cpu.cfs_quota_us": "-1",
    "cpu.max": "max",
    "memory.limit_in_bytes": "-1",
    "memory.memsw.limit_in_bytes": "-1",
    "memory.max": "max",
    "memory.swap.max": "max",
}


class CpuHog(SustainedFault):
    """A noisy neighbour: all processes of the host get less CPU time, this program too."""

    kind: Literal["cpu_hog"] = "cpu_hog"
    busy_percent: float = Field(default=100.0, gt=0, le=100)
    """Share of a CPU's time that each process takes while no other needs it."""
    processes: int | None = Field(default=None, ge=1, le=1024)
    """Number of processes; by default one for each CPU that this program may use."""

    def prepare(self, site: Site) -> dict[str, Any]:  # noqa: ARG002 - whatever the site
        """Return how many, how busy, and their token."""
        return {
            "token": new_token(),
            "processes": self.processes or len(os.sched_getaffinity(0)),
            "busy_ratio": self.busy_percent / 100,
        }

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Compute in the given number of processes, without a result."""
        parent = os.getpid()
        for _ in range(record["processes"] - 1):
            if os.fork() == 0:
                while os.getppid() == parent:
                    _burn(record["busy_ratio"])
                os._exit(0)
        ready()
        while True:
            _burn(record["busy_ratio"])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report those that do not run."""
        found, wanted = len(started_with(record["token"])), record["processes"]
        return [] if found >= wanted else [f"{found} of {wanted} processes run"]


def _burn(busy_ratio: float) -> None:
    """One slice: compute, then rest. By CPU time, so that waiting counts as rest."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < busy_ratio * _SLICE_SECONDS:
        for _ in _SPIN:
            pass
    rest = _SLICE_SECONDS - (time.monotonic() - began)
    if rest > 0:
        time.sleep(rest)


class MemoryHog(SustainedFault):
    """A neighbour that takes memory, and releases it when others need it.

    It is the first that the kernel kills, should it come to that.
    """

    kind: Literal["memory_hog"] = "memory_hog"
    available_percent: float = Field(default=50.0, gt=0, le=MOST_PERCENT)
    """Share of the memory that is available on the host at the start."""
    most_mebibytes: int = Field(default=1024, ge=1, le=8192)
    """Upper limit: taking a gibibyte may last seconds on a virtual machine, and releasing it
    a fifth of a second.
    """

    def prepare(self, site: Site) -> dict[str, Any]:  # noqa: ARG002 - whatever the site
        """Return how much, how much is to be left, and its token."""
        available = _available()
        wanted = int(available * self.available_percent / 100)
        return {
            "token": new_token(),
            "bytes": min(wanted, self.most_mebibytes << 20),
            "leave_bytes": available - int(available * MOST_PERCENT / 100),
        }

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Take memory, hold it, and release it when others need it."""
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
        held: list[mmap.mmap] = []
        left = record["bytes"]
        # Populated, so that it is there and not promised.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        while left > 0 and _available() - _CHUNK_BYTES > record["leave_bytes"]:
            held.append(mmap.mmap(-1, min(left, _CHUNK_BYTES), flags=flags))
            left -= _CHUNK_BYTES
        ready()
        while True:
            while held and _available() < record["leave_bytes"]:
                held.pop().close()
            time.sleep(_POLL_SECONDS)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report memory that it does not hold."""
        held = sum(
            resident_bytes(each.pid) or 0 for each in started_with(record["token"])
        )
        if held >= _HELD_RATIO * record["bytes"]:
            return []
        return [f"it holds {held} bytes of {record['bytes']}"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End it; the kernel takes a while to have all of it back."""
        hogs = started_with(record["token"])
        for hog in hogs:
            hog.send(signal.SIGKILL)
        for hog in hogs:
            hog.wait_until(None, _RETURN_SECONDS)
        super().revert(record)


def _available() -> int:
    with contextlib.suppress(OSError):
        for line in _MEMINFO.read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    raise FaultRefusedError(
        f"{_MEMINFO} does not say how much memory is available",
        "take memory_limit, which needs no such thing",
    )


class GroupLimit(Fault):
    """The server and its backend processes, together in a control group with a limit."""

    controller: ClassVar[str]

    def limits(self, version: int) -> list[tuple[str, str]]:
        """Return files of the group and their contents, by version of control groups."""
        raise NotImplementedError

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the group, its limits, and the processes to put into it."""
        server = server_of(site)
        group = Group.plan(server, self.controller, new_token())
        return {
            **group.to_record(),
            "limits": [list(limit) for limit in self.limits(group.version)],
            "processes": [each.to_record() for each in (server, *site.stubs())],
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Make the group, limit it, and move them in."""
        group = Group.from_record(record)
        group.make()
        for name, value in record["limits"]:
            # Accounts of swap are not everywhere.
            if group.read(name) is not None:
                group.write(name, value)
        group.take(map(ProcessRef.from_record, record["processes"]))

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a limit that is not set, and processes that are not in the group."""
        group = Group.from_record(record)
        if not group.there:
            return [f"there is no control group {group.folder}"]
        wrong = [
            f"{group.folder / name} is not {value}"
            for name, value in record["limits"]
            if group.read(name) not in {value, None}
        ]
        inside = group.pids()
        return wrong + [
            f"process {process.pid} is not limited"
            for process in map(ProcessRef.from_record, record["processes"])
            if process.alive and process.pid not in inside
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Lift the limit, move all home, those started since too, remove the group."""
        group = Group.from_record(record)
        # Throttled processes resume at once, and can be moved back sooner.
        for name, _ in reversed(record["limits"]):
            if name in _UNLIMITED and group.read(name) is not None:
                with contextlib.suppress(FaultFailedError):
                    group.write(name, _UNLIMITED[name])
        group.remove()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report the group."""
        group = Group.from_record(record)
        return [f"the control group {group.folder} is there"] if group.there else []


class CpuLimit(GroupLimit):
    """A container with a CPU limit: it runs in slices of 100 ms, then waits."""

    kind: Literal["cpu_limit"] = "cpu_limit"
    cpu_percent: float = Field(default=20.0, ge=1, le=100_000)
    """Share of one CPU's time, for the server and its backend processes together."""

    controller: ClassVar[str] = "cpu"

    def limits(self, version: int) -> list[tuple[str, str]]:
        """Return the quota of each period."""
        quota = round(self.cpu_percent / 100 * _PERIOD_MICROSECONDS)
        if version == 1:
            return [
                ("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)),
                ("cpu.cfs_quota_us", str(quota)),
            ]
        return [("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")]


class MemoryLimit(GroupLimit):
    """A container with a memory limit: the kernel kills a process that exceeds it.

    What the server has already is not counted: memory stays with the group that it was
    taken in.
    """

    kind: Literal["memory_limit"] = "memory_limit"
    headroom_mebibytes: float = Field(default=64.0, ge=1, le=1_000_000)
    """Memory that the server and its backend processes may still allocate together."""

    controller: ClassVar[str] = "memory"

    def limits(self, version: int) -> list[tuple[str, str]]:
        """Return the limit in whole pages, and no swap beside it."""
        limit = int(self.headroom_mebibytes * 2**20) // _PAGE_BYTES * _PAGE_BYTES
        if version == 1:
            return [
                ("memory.limit_in_bytes", str(limit)),
                ("memory.memsw.limit_in_bytes", str(limit)),
            ]
        return [("memory.max", str(limit)), ("memory.swap.max", "0")]


class Descriptors(Fault):
    """Exhausted descriptors: new connections hang, no file can be opened; open ones stay.

    Only the soft limit: it can be raised again without privileges, the hard one cannot.
    """

    kind: Literal["descriptors"] = "descriptors"
    of: Literal["server", "sidecar"] = Field(default="server")
    """The process whose descriptors are limited."""
    spare: int = Field(default=0, ge=0, le=100_000)
    """Number of descriptors that may still be opened."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the process, its limits, and the lower one."""
        process = server_of(site) if self.of == "server" else sidecar_of(site)
        try:
            soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            lowered = _beyond(process, self.spare)
        except PermissionError:
            raise FaultRefusedError(
                f"the limits of process {process.pid} may not be set",
                "run as its user with its capabilities, or as root",
            ) from None
        except OSError:
            raise FaultRefusedError(
                f"process {process.pid} has just ended", "wait until it runs again"
            ) from None
        if soft != resource.RLIM_INFINITY and lowered >= soft:
            raise FaultRefusedError(
                f"process {process.pid} may open no more than {soft} files as it is",
                f"spare fewer than {self.spare} descriptors",
            )
        return {
            "process": process.to_record(),
            "soft": soft,
            "hard": hard,
            "lowered": lowered,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Lower the soft limit."""
        if not _set_limit(record, record["lowered"]):
            raise FaultFailedError(f"process {record['process'][0]} has ended")

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report another limit."""
        soft = _soft_limit(record)
        if soft == record["lowered"]:
            return []
        return [f"the limit is {'gone with its process' if soft is None else soft}"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Raise the limit again, unless it was changed in the meantime."""
        if _soft_limit(record) == record["lowered"]:
            _set_limit(record, record["soft"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a limit that is still the lowered one."""
        if _soft_limit(record) != record["lowered"]:
            return []
        pid = record["process"][0]
        remedy = f"prlimit --pid {pid} --nofile={record['soft']}:"
        return [
            f"process {pid} may open no more than {record['lowered']} files; {remedy}"
        ]


def _beyond(process: ProcessRef, spare: int) -> int:
    """Return the limit that leaves `spare` free: it bounds descriptor numbers."""
    taken = {int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()}
    limit = 0
    while limit in taken or spare > 0:
        spare -= limit not in taken
        limit += 1
    return limit


def _soft_limit(record: dict[str, Any]) -> int | None:
    process = ProcessRef.from_record(record["process"])
    with contextlib.suppress(ProcessLookupError):
        if process.alive:
            return resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0]
    return None


def _set_limit(record: dict[str, Any], soft: int) -> bool:
    process = ProcessRef.from_record(record["process"])
    if not process.alive:
        return False
    try:
        limits = (soft, record["hard"])
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise FaultFailedError(
            f"the limits of process {process.pid} may not be set; as its user: "
            f"prlimit --pid {process.pid} --nofile={soft}:"
        ) from None
    return True
