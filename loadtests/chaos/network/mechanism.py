"""A way to make a network bad, and which one is taken here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from loadtests.chaos.errors import FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadtests.chaos.network.effect import Effect
    from loadtests.chaos.site import Site


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be wrong, and with which of the server's ports."""

    effect: Effect
    protocols: tuple[str, ...]
    token: str


class Mechanism(Protocol):
    """Makes effects so. Its records are plain JSON with all that undo needs."""

    def refusal(self, site: Site, effect: Effect) -> str | None:
        """Why it cannot be done this way there; None where it can. Touches nothing."""
        ...

    def prepare(self, site: Site, wanted: Wanted) -> dict[str, Any]:
        """Everything that the others need."""
        ...

    def inject(self, record: dict[str, Any]) -> None:
        """Make it so.

        Raises:
            FaultFailedError: it could not be done.
        """
        ...

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return what of it is not in effect."""
        ...

    def revert(self, record: dict[str, Any]) -> None:
        """Undo it; idempotent.

        Raises:
            FaultFailedError: it could not be undone.
        """
        ...

    def residue(self, record: dict[str, Any]) -> list[str]:
        """Return what is left of it."""
        ...


def choose(
    mechanisms: Mapping[str, Mechanism],
    names: Sequence[str],
    site: Site,
    effect: Effect,
) -> str:
    """The first of these that can do it there.

    Raises:
        FaultRefusedError: none can; why, one by one.
    """
    reasons = []
    for name in names:
        reason = mechanisms[name].refusal(site, effect)
        if reason is None:
            return name
        reasons.append(f"{name}: {reason}")
    raise FaultRefusedError(
        f"the network of {site.name} cannot be made bad ({'; '.join(reasons)})",
        "put the fault proxy in front of it (`target: {proxy: true}`), which needs neither "
        "root nor a kernel module, and faults only what connects through it",
    )
