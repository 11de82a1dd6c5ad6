"""A mechanism that makes a network bad, which one is taken, and what it may touch."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any, Protocol

from loadtests.chaos.errors import FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from loadtests.chaos.network.effect import Effect
    from loadtests.chaos.site import Site


class Mechanism(Protocol):
    """Makes effects so. Its records are plain JSON with all that undo needs."""

    def refusal(self, site: Site, effect: Effect) -> str | None:
        """Why it cannot be done this way there; None where it can. Touches nothing."""
        ...

    def prepare(
        self, site: Site, protocols: Sequence[str], token: str
    ) -> dict[str, Any]:
        """Return what the record needs beside token and effect."""
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


def ports_of(site: Site, protocols: Sequence[str]) -> list[int]:
    """Return the ports of the server itself, for these protocols."""
    return [int(getattr(site, name).rpartition(":")[2]) for name in protocols]


def loopback_refusal(site: Site, *, versions: Collection[int] = (4, 6)) -> str | None:
    """Return why packets to that server must not be touched; None where they may be.

    Only packets over loopback: beyond it a rule could reach somebody else. Of these
    versions of IP.
    """
    if os.geteuid() != 0:
        return "needs root"
    for address in (site.grpc, site.http):
        host = address.rpartition(":")[0].strip("[]")
        if host == "localhost":
            continue
        try:
            found = ipaddress.ip_address(host)
        except ValueError:
            return f"{address} is not an address of loopback"
        if not found.is_loopback:
            return f"{address} is not an address of loopback"
        if found.version not in versions:
            return f"{address} is an address of IPv{found.version}"
    return None
