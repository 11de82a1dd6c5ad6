"""A model hangs: SIGSTOP to its Python backend, while the rest of the server goes on.

Triton 2.51 aborts when a backend process that has work stays stopped for about two
seconds; half a second to one second is survived. Undo sooner to see a hang, later to
see the gray failure become a crash, whose remains undo clears away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loadtests.chaos.faults import needs
from loadtests.chaos.faults.base import Fault
from loadtests.chaos.primitives import stopping
from loadtests.chaos.primitives.backends import Belongings
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.site import Site


class FreezeStub(Fault):
    """Requests for one model wait, and the server calls it ready."""

    kind: Literal["freeze_stub"] = "freeze_stub"
    model: str
    """One of the Python backend; all its instances stop."""

    def require(self, site: Site) -> None:
        """The model's backend processes on this host."""
        needs.stubs_of(site, self.model)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Them, and what the server would leave if it aborted."""
        victims = needs.stubs_of(site, self.model)
        return {
            "victims": [victim.to_record() for victim in victims],
            "belongings": Belongings.of(needs.server_of(site)).to_record(),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Stop them."""
        stopping.stop(_victims(record))

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Those that still run, or are gone."""
        return [
            f"backend process {victim.pid} is not stopped"
            for victim in _victims(record)
            if not stopping.is_stopped(victim)
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Let them go on; where the server aborted, clear away what it left."""
        try:
            stopping.go_on(_victims(record))
        finally:
            Belongings.from_record(record["belongings"]).sweep()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Processes that are still stopped, and what an aborted server left."""
        return [
            f"backend process {victim.pid} is stopped"
            for victim in _victims(record)
            if stopping.is_stopped(victim)
        ] + Belongings.from_record(record["belongings"]).left()


def _victims(record: dict[str, Any]) -> list[ProcessRef]:
    return [ProcessRef.from_record(entry) for entry in record["victims"]]
