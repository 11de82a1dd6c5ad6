"""The base of every fault: injected, verified, reverted, verified to be gone.

    fault = FreezeServer()
    fault.require(site)             # what it needs, before anything is touched
    record = fault.prepare(site)    # all that undo will need; goes to disk first
    fault.inject(record)
    assert not fault.missing(record)
    FreezeServer.revert(record)     # by anybody, any number of times
    assert not FreezeServer.residue(record)

A record is plain JSON and enough by itself: whoever reverts may be another process,
after the one that injected was killed at any point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from exporter.settings import Settings
from loadtests.chaos.errors import FaultFailedError, FaultRefusedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

__all__ = ["Fault", "FaultFailedError", "FaultRefusedError"]


class Fault(Settings):
    """A way to break a deployment. `kind` names it in experiments and journals."""

    strength: ClassVar[str | None] = None
    """The setting that says how strong it is, for degradation curves."""

    def require(self, site: Site) -> None:
        """Whether it can be injected there; touches nothing.

        Raises:
            FaultRefusedError: it lacks a privilege, a program, or a part of the site.
        """
        raise NotImplementedError

    def prepare(self, site: Site) -> dict[str, Any]:
        """Everything that `inject` and `revert` need, decided before anything is touched.

        Raises:
            FaultRefusedError: what `require` saw has changed.
        """
        raise NotImplementedError

    def inject(self, record: dict[str, Any]) -> None:
        """Break it. Killed at any point, `revert` still undoes what was done.

        Raises:
            FaultFailedError: it could not be done.
        """
        raise NotImplementedError

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return the parts of the fault that are not in effect, in sentences."""
        raise NotImplementedError

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Undo it, within a second. Idempotent, and right after any part of `inject`.

        Raises:
            FaultFailedError: it could not be undone; what is left and how to remove it.
        """
        raise NotImplementedError

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Return what is left of it on this host, in sentences."""
        raise NotImplementedError
