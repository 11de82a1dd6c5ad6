"""A gray failure: SIGKILL to the Python backend of a model.

Every request to the model fails. Before Triton 2.65 live, ready and the model's ready
stay true; from there on the model and, with strict readiness, the server are not ready,
while the repository index still lists the model as READY. Triton does not start another backend process, and `load` alone does nothing: only unload and load
repairs it, which is what undo does unless `repair` is off.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from loadtests.chaos.faults import needs
from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.backends import Belongings, stubs_of
from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_END_SECONDS: Final = 2.0


class KillStub(Fault):
    """A model without its backend process: listed as ready, and every request fails."""

    kind: Literal["kill_stub"] = "kill_stub"
    model: str
    """One of the Python backend; all its instances are killed."""
    repair: bool = Field(default=True)
    """Undo unloads and loads the model where nobody has. Off, it stays dead."""

    def require(self, site: Site) -> None:
        """Its backend processes, and for the repair a server that loads on demand."""
        needs.stubs_of(site, self.model)
        if self.repair:
            needs.controlled(site, self.model)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Its processes, and the server's."""
        victims = needs.stubs_of(site, self.model)
        return {
            "model": self.model,
            "victims": [victim.to_record() for victim in victims],
            "http": site.http if self.repair else None,
            "belongings": Belongings.of(needs.server_of(site)).to_record(),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Kill them."""
        for victim in _victims(record):
            victim.send(signal.SIGKILL)
        for victim in _victims(record):
            if not victim.wait_until(None, _END_SECONDS):
                raise FaultFailedError(f"process {victim.pid} does not end")

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Those that still run."""
        return [
            f"backend process {victim.pid} of {record['model']} still runs"
            for victim in _victims(record)
            if victim.alive
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Load the model anew, if it has no backend process, and clear away the rest."""
        belongings = Belongings.from_record(record["belongings"])
        if cls._dead(record):
            try:
                # Triton would wait for ever for the dead process; load ends the wait.
                model_control.unload(record["http"], record["model"], wait=False)
                model_control.load(record["http"], record["model"])
            except model_control.ControlError as error:
                if belongings.server.alive:
                    raise FaultFailedError(
                        f"model {record['model']!r} could not be repaired: {error}; "
                        "unload and load it, or restart the server"
                    ) from error
        belongings.sweep()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """A model without a backend process, and what a dead server left."""
        left = Belongings.from_record(record["belongings"]).left()
        if cls._dead(record):
            left.append(f"model {record['model']!r} is dead; unload and load it")
        return left

    @staticmethod
    def _dead(record: dict[str, Any]) -> bool:
        """Return whether it needs repair: its server lives and no process of it does."""
        server = Belongings.from_record(record["belongings"]).server
        repair = record["http"] is not None and server.alive
        return repair and not stubs_of(server, record["model"])


def _victims(record: dict[str, Any]) -> list[ProcessRef]:
    return [ProcessRef.from_record(entry) for entry in record["victims"]]
