"""Which ports of this host a fault of the network may touch: those of one server."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from loadtests.chaos.site import Site


def port_of(site: Site, protocol: str) -> int:
    """Of the server itself, for that protocol."""
    return int(getattr(site, protocol).rpartition(":")[2])


def refusal(site: Site, *, versions: Collection[int] = (4, 6)) -> str | None:
    """Why packets to that server are not to be touched; None where they may be.

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
