"""The server hangs: SIGSTOP to tritonserver and its backend processes alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loadtests.chaos.faults.base import Fault
from loadtests.chaos.faults.needs import server_of
from loadtests.chaos.primitives import stopping
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.site import Site


class FreezeServer(Fault):
    """Connections stay open and nothing answers, the health endpoints included."""

    kind: Literal["freeze_server"] = "freeze_server"

    def require(self, site: Site) -> None:
        """A server on this host."""
        server_of(site)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Its processes."""
        found = [server_of(site), *site.stubs()]
        return {"processes": [process.to_record() for process in found]}

    def inject(self, record: dict[str, Any]) -> None:
        """Stop them, the server first, so that it does not see a stub hang."""
        stopping.stop(_processes(record))

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Those that still run."""
        return [
            f"process {process.pid} is not stopped"
            for process in _processes(record)
            if not stopping.is_stopped(process)
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Let them go on, stubs first: a server that waits for one longer aborts."""
        stopping.go_on(_processes(record)[::-1])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Processes that are still stopped."""
        return [
            f"process {process.pid} is stopped"
            for process in _processes(record)
            if stopping.is_stopped(process)
        ]


def _processes(record: dict[str, Any]) -> list[ProcessRef]:
    return [ProcessRef.from_record(entry) for entry in record["processes"]]
