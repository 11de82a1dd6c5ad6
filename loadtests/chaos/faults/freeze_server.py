"""The server hangs: SIGSTOP to tritonserver and its backend processes alike."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final, Literal

from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.faults.needs import server_of
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_WAIT_SECONDS: Final = 0.5


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
        for process in _processes(record):
            process.send(signal.SIGSTOP)
        for process in _processes(record):
            process.wait_until("Tt", _WAIT_SECONDS)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Those that still run."""
        return [
            f"process {process.pid} is not stopped"
            for process in _processes(record)
            if process.state not in {"T", "t"}
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Let them go on, stubs first: a server that waits for one longer aborts."""
        for process in reversed(_processes(record)):
            process.send(signal.SIGCONT)
        for process in _processes(record):
            if process.alive and not process.wait_until("RSDI", _WAIT_SECONDS):
                raise FaultFailedError(
                    f"process {process.pid} is still stopped; kill -CONT {process.pid}"
                )

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Processes that are still stopped."""
        return [
            f"process {process.pid} is stopped"
            for process in _processes(record)
            if process.state in {"T", "t"}
        ]


def _processes(record: dict[str, Any]) -> list[ProcessRef]:
    return [ProcessRef.from_record(entry) for entry in record["processes"]]
