"""Limits of a server's resources, CPU and memory: a control group of the fault's own."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.faults.needs import server_of
from loadtests.chaos.primitives.cgroups import Group
from loadtests.chaos.primitives.processes import ProcessRef, new_token

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

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


class GroupLimit(Fault):
    """The server and its backend processes, together in a group with a limit."""

    controller: ClassVar[str]

    def limits(self, version: int) -> list[tuple[str, str]]:
        """Files of the group and what stands in them, by version of control groups."""
        raise NotImplementedError

    def require(self, site: Site) -> None:
        """A server here, the controller, and root."""
        Group.plan(server_of(site), self.controller, "probe")

    def prepare(self, site: Site) -> dict[str, Any]:
        """The group, its limits, and who is to be in it."""
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
        """A limit that is not set, processes that are not in the group."""
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
        # Who is throttled serves again at once, and goes home the sooner.
        for name, _ in reversed(record["limits"]):
            if name in _UNLIMITED and group.read(name) is not None:
                with contextlib.suppress(FaultFailedError):
                    group.write(name, _UNLIMITED[name])
        group.remove()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """The group."""
        group = Group.from_record(record)
        return [f"the control group {group.folder} is there"] if group.there else []


class CpuLimit(GroupLimit):
    """A container with a CPU limit: work goes on in slices of 100 ms, then waits."""

    kind: Literal["cpu_limit"] = "cpu_limit"
    cpu_percent: float = Field(default=20.0, ge=1, le=100_000)
    """Of one CPU's time, for the server and its backend processes together."""

    strength: ClassVar[str | None] = "cpu_percent"
    controller: ClassVar[str] = "cpu"

    def limits(self, version: int) -> list[tuple[str, str]]:
        """The quota of each period."""
        quota = round(self.cpu_percent / 100 * _PERIOD_MICROSECONDS)
        if version == 1:
            return [
                ("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)),
                ("cpu.cfs_quota_us", str(quota)),
            ]
        return [("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")]


class MemoryLimit(GroupLimit):
    """A container with a memory limit: whoever goes over it is killed by the kernel.

    What the server has already is not counted: memory stays with the group that it was
    taken in.
    """

    kind: Literal["memory_limit"] = "memory_limit"
    headroom_mebibytes: float = Field(default=64.0, ge=1, le=1_000_000)
    """How much more the server and its backend processes may take together."""

    strength: ClassVar[str | None] = "headroom_mebibytes"
    controller: ClassVar[str] = "memory"

    def limits(self, version: int) -> list[tuple[str, str]]:
        """The limit in whole pages, and no swap beside it."""
        limit = int(self.headroom_mebibytes * 2**20) // _PAGE_BYTES * _PAGE_BYTES
        if version == 1:
            return [
                ("memory.limit_in_bytes", str(limit)),
                ("memory.memsw.limit_in_bytes", str(limit)),
            ]
        return [("memory.max", str(limit)), ("memory.swap.max", "0")]
