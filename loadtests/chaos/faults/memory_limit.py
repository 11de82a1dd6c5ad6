"""The server may take only so much more memory: a limit of its control group."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.group_limit import GroupLimit
from loadtests.chaos.primitives.cgroups import Group

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


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

    @staticmethod
    def kills(record: dict[str, Any]) -> int | None:
        """How many the kernel has killed for it; None where it does not say."""
        group = Group.from_record(record)
        file = "memory.oom_control" if group.version == 1 else "memory.events"
        for line in (group.read(file) or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
        return None
