"""The base of every fault: inject, verify, revert, and check for residue.

    fault = FreezeServer()
    record = fault.prepare(site)    # all that undo will need; goes to disk first
    fault.inject(record)
    assert not fault.missing(record)
    FreezeServer.revert(record)     # by any process, any number of times
    assert not FreezeServer.residue(record)

A record is plain JSON and enough by itself: another process can revert from it, after
the one that injected was killed at any point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from exporter.settings import Settings
from loadtests.chaos.primitives.process_refs import (
    start_program,
    started_with,
    stop_program,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site


class Fault(Settings):
    """A way to break a deployment. `kind` names it in experiments and journals."""

    of_host: ClassVar[bool] = False
    """True if other programs of the host are affected, which the allow-list has to name."""
    after_undo: ClassVar[str] = ""
    """Work that its undo leaves to the deployment or the operator."""

    @classmethod
    def name(cls) -> str:
        """Return its `kind`."""
        return str(cls.model_fields["kind"].default)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return everything that `inject` and `revert` need; touches nothing.

        Raises:
            FaultRefusedError: it lacks a privilege, a program, or a part of the site.
        """
        raise NotImplementedError

    def inject(self, record: dict[str, Any]) -> None:
        """Inject the fault. If the process is killed at any point, `revert` undoes the rest.

        Raises:
            FaultFailedError: it could not be done.
        """
        raise NotImplementedError

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return the parts of the fault that are not in effect, in sentences."""
        raise NotImplementedError

    def lapsed(self, record: dict[str, Any]) -> list[str]:
        """Return the parts of the fault that ended before their undo, in sentences."""
        return self.missing(record)

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Undo it within a second. Idempotent, and correct after any part of `inject`.

        Raises:
            FaultFailedError: it could not be undone; what is left and how to remove it.
        """
        raise NotImplementedError

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Return remains of the fault on this host, in sentences."""
        raise NotImplementedError


class SustainedFault(Fault):
    """A fault that a process of its own keeps up; its record has that process's token."""

    longest_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """Time after which the process, and so the fault, ends by itself."""

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Cause the fault, call `ready`, and keep it up; runs in the process."""
        raise NotImplementedError

    def inject(self, record: dict[str, Any]) -> None:
        """Start the process; the fault is in effect when this returns."""
        start_program(record["token"], self.name(), record, self.longest_seconds)

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End the process."""
        stop_program(record["token"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report the process."""
        found = started_with(record["token"])
        return [f"process {process.pid} of the fault still runs" for process in found]
