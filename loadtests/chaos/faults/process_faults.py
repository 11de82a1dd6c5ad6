"""Processes that die or hang: the server, a model's backend, the sidecar.

Undoing a kill removes the remains of the dead process. Starting a new one is the task of the
deployment's supervisor; a target without a supervisor stays down.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from loadtests.chaos.faults import needs
from loadtests.chaos.faults.fault import Fault
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.backends import Belongings, stubs_of
from loadtests.chaos.primitives.process_refs import (
    ProcessRef,
    is_stopped,
    resume,
    stop,
)
from loadtests.errors import FaultFailedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_END_SECONDS: Final = 2.0


def _processes(record: dict[str, Any]) -> list[ProcessRef]:
    """The processes that a fault kills or stops."""
    return [ProcessRef.from_record(entry) for entry in record["processes"]]


class _Kill(Fault):
    """SIGKILL to the processes of a record."""

    def inject(self, record: dict[str, Any]) -> None:
        """Kill them."""
        processes = _processes(record)
        for process in processes:
            process.send(signal.SIGKILL)
        for process in processes:
            if not process.kill(_END_SECONDS):
                raise FaultFailedError(
                    f"process {process.pid} did not end after SIGKILL"
                )

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report those that still run; new ones are the deployment's."""
        return [
            f"process {process.pid} still runs"
            for process in _processes(record)
            if process.alive
        ]


class KillServer(_Kill):
    """A killed server: connections are reset and refused; a restart reloads every model."""

    after_undo: ClassVar[str] = ": its remains are removed; no server is started"
    kind: Literal["kill_server"] = "kill_server"

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return its process, its backend processes and their shared memory."""
        found = Belongings.of(needs.server_of(site)).to_record()
        return {**found, "processes": [found["server"]]}

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End orphaned backend processes and remove their shared memory."""
        Belongings.from_record(record).sweep()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report orphaned backend processes and their shared memory."""
        return Belongings.from_record(record).left()


class KillSidecar(_Kill):
    """A killed sidecar: production must not be affected, and an alert should fire."""

    after_undo: ClassVar[str] = ": nothing remains; no sidecar is started"
    kind: Literal["kill_sidecar"] = "kill_sidecar"

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return its process."""
        return {"processes": [needs.sidecar_of(site).to_record()]}

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Do nothing: a single kill needs no undo."""

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:  # noqa: ARG003 - as for every fault
        """Return nothing: a sidecar leaves no process and no shared memory."""
        return []


class KillStub(_Kill):
    """A model without its backend process: listed as ready, and every request fails.

    Before Triton 2.65 live, ready and the model's ready stay true; from there on the model
    and, with strict readiness, the server are not ready, while the repository index still
    lists the model as READY. Triton does not start another backend process, and `load`
    alone does nothing: only unload and load repairs it, which is what undo does.
    """

    kind: Literal["kill_stub"] = "kill_stub"
    model: str
    """One of the Python backend; all its instances are killed."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return its processes and the server's; the repair needs model control."""
        victims = needs.stubs_of(site, self.model)
        needs.controlled(site, self.model)
        return {
            "model": self.model,
            "processes": [victim.to_record() for victim in victims],
            "http": site.http,
            "belongings": Belongings.of(needs.server_of(site)).to_record(),
        }

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Reload the model if it has no backend process, and remove the remains."""
        belongings = Belongings.from_record(record["belongings"])
        if cls._dead(record):
            try:
                # Triton would wait without end for the dead process; load ends the wait.
                model_control.unload(record["http"], record["model"])
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
        """Report a model without a backend process, and remains of a dead server."""
        left = Belongings.from_record(record["belongings"]).left()
        if cls._dead(record):
            left.append(f"model {record['model']!r} is dead; unload and load it")
        return left

    @staticmethod
    def _dead(record: dict[str, Any]) -> bool:
        """Return whether it needs repair: its server lives and no process of it does."""
        server = Belongings.from_record(record["belongings"]).server
        return server.alive and not stubs_of(server, record["model"])


class _Freeze(Fault):
    """SIGSTOP to the processes of a record, in its order."""

    def inject(self, record: dict[str, Any]) -> None:
        """Stop them."""
        stop(_processes(record))

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report processes that still run, or do not exist any more."""
        return [
            f"process {process.pid} is not stopped"
            for process in _processes(record)
            if not is_stopped(process)
        ]

    def lapsed(self, record: dict[str, Any]) -> list[str]:
        """Report processes that run; that one ended may be the effect."""
        return [
            f"process {process.pid} runs again"
            for process in _processes(record)
            if process.alive and not is_stopped(process)
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Resume them, the last first."""
        resume(_processes(record)[::-1])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report processes that are still stopped."""
        return [
            f"process {process.pid} is stopped"
            for process in _processes(record)
            if is_stopped(process)
        ]


class FreezeServer(_Freeze):
    """A frozen server: connections stay open, and no request is answered, health included."""

    kind: Literal["freeze_server"] = "freeze_server"

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return its processes.

        The server is stopped first, so that it does not see a stub hang, and resumed last:
        a server that waits for one longer aborts.
        """
        found = [needs.server_of(site), *site.stubs()]
        return {"processes": [process.to_record() for process in found]}


class FreezeStub(_Freeze):
    """A frozen model: its requests wait, and the server reports it as ready.

    Triton 2.51 aborts when a backend process that has work stays stopped for about two
    seconds; half a second to one second is survived. Undo sooner to see a hang, later to
    see the gray failure become a crash, whose remains undo removes.
    """

    kind: Literal["freeze_stub"] = "freeze_stub"
    model: str
    """One of the Python backend; all its instances stop."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return its processes, and what the server would leave behind if it aborted."""
        victims = needs.stubs_of(site, self.model)
        return {
            "processes": [victim.to_record() for victim in victims],
            "belongings": Belongings.of(needs.server_of(site)).to_record(),
        }

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Resume them; if the server aborted, remove its leftovers."""
        try:
            super().revert(record)
        finally:
            Belongings.from_record(record["belongings"]).sweep()

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report processes that are still stopped, and what an aborted server left."""
        left = Belongings.from_record(record["belongings"]).left()
        return super().residue(record) + left
