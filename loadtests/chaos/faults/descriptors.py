"""Descriptors run out: the soft limit on open files is lowered to what is open.

Only the soft limit: it can be raised again without privileges, the hard one cannot.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.needs import server_of, sidecar_of
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_LIMIT: Final = resource.RLIMIT_NOFILE


class Descriptors(Fault):
    """What is connected goes on; new connections hang, and files cannot be opened."""

    strength: ClassVar[str | None] = "spare"

    kind: Literal["descriptors"] = "descriptors"
    of: Literal["server", "sidecar"] = Field(default="server")
    """Whose descriptors."""
    spare: int = Field(default=0, ge=0, le=100_000)
    """How many may still be opened."""

    def require(self, site: Site) -> None:
        """A process on this host whose limits may be set."""
        process = self._process(site)
        try:
            resource.prlimit(process.pid, _LIMIT)
        except PermissionError:
            raise FaultRefusedError(
                f"the limits of process {process.pid} may not be set",
                "run as its user with its capabilities, or as root",
            ) from None
        except ProcessLookupError:
            raise FaultRefusedError(
                f"process {process.pid} has just ended", "wait until it runs again"
            ) from None

    def prepare(self, site: Site) -> dict[str, Any]:
        """The process, its limits, and the lower one."""
        self.require(site)
        process = self._process(site)
        try:
            soft, hard = resource.prlimit(process.pid, _LIMIT)
            lowered = _beyond(process, self.spare)
        except (OSError, ProcessLookupError):
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
        if not _set(record, record["lowered"]):
            raise FaultFailedError(f"process {record['process'][0]} has ended")

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether the limit is another one."""
        soft = _soft(record)
        if soft == record["lowered"]:
            return []
        return [f"the limit is {'gone with its process' if soft is None else soft}"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Raise it again, unless somebody else has set it meanwhile."""
        if _soft(record) == record["lowered"]:
            _set(record, record["soft"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Return whether the limit is still the lowered one."""
        if _soft(record) != record["lowered"]:
            return []
        pid = record["process"][0]
        remedy = f"prlimit --pid {pid} --nofile={record['soft']}:"
        return [
            f"process {pid} may open no more than {record['lowered']} files; {remedy}"
        ]

    def _process(self, site: Site) -> ProcessRef:
        return server_of(site) if self.of == "server" else sidecar_of(site)


def _beyond(process: ProcessRef, spare: int) -> int:
    """The limit that leaves so many numbers free: it bounds numbers, not how many."""
    taken = {int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()}
    limit = 0
    while limit in taken or spare > 0:
        spare -= limit not in taken
        limit += 1
    return limit


def _soft(record: dict[str, Any]) -> int | None:
    process = ProcessRef.from_record(record["process"])
    if not process.alive:
        return None
    try:
        return resource.prlimit(process.pid, _LIMIT)[0]
    except ProcessLookupError:
        return None


def _set(record: dict[str, Any], soft: int) -> bool:
    process = ProcessRef.from_record(record["process"])
    if not process.alive:
        return False
    try:
        resource.prlimit(process.pid, _LIMIT, (soft, record["hard"]))
    except ProcessLookupError:
        return False
    except PermissionError:
        raise FaultFailedError(
            f"the limits of process {process.pid} may not be set; as its user: "
            f"prlimit --pid {process.pid} --nofile={soft}:"
        ) from None
    return True
