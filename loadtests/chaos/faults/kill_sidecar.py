"""The watcher is gone: SIGKILL to the sidecar.

There is nothing to undo. A new sidecar is the business of whatever keeps the deployment
up; a target without such a thing stays unwatched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.faults.needs import sidecar_of
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_END_SECONDS: Final = 2.0


class KillSidecar(Fault):
    """Production should feel nothing of it, and somebody should be told."""

    kind: Literal["kill_sidecar"] = "kill_sidecar"

    def require(self, site: Site) -> None:
        """A sidecar on this host."""
        sidecar_of(site)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Its process."""
        return {"sidecar": sidecar_of(site).to_record()}

    def inject(self, record: dict[str, Any]) -> None:
        """Kill it."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        if not sidecar.kill(_END_SECONDS):
            raise FaultFailedError(f"process {sidecar.pid} does not end after SIGKILL")

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether that process still runs; a new one is the deployment's."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        return [f"sidecar {sidecar.pid} still runs"] if sidecar.alive else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Nothing: what was killed once is not killed again."""

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:  # noqa: ARG003 - as for every fault
        """Nothing: a sidecar has no process and no shared memory beside its own."""
        return []
