"""The server is gone: SIGKILL to tritonserver.

To undo is to clear away what its death leaves behind. A new server is the business of
whatever keeps the deployment up; a target without such a thing stays down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.faults.needs import server_of
from loadtests.chaos.primitives.backends import Belongings

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_END_SECONDS: Final = 2.0


class KillServer(Fault):
    """Connections are reset and refused; a restart loads every model anew."""

    kind: Literal["kill_server"] = "kill_server"

    def require(self, site: Site) -> None:
        """A server on this host."""
        server_of(site)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Its process, its backend processes and their shared memory."""
        return Belongings.of(server_of(site)).to_record()

    def inject(self, record: dict[str, Any]) -> None:
        """Kill it."""
        server = Belongings.from_record(record).server
        if not server.kill(_END_SECONDS):
            raise FaultFailedError(f"process {server.pid} does not end after SIGKILL")

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether that process still runs; a new one is the deployment's."""
        server = Belongings.from_record(record).server
        return [f"process {server.pid} still runs"] if server.alive else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End orphaned backend processes and remove their shared memory."""
        Belongings.from_record(record).sweep()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Orphaned backend processes and their shared memory."""
        return Belongings.from_record(record).left()
