"""Which ports of this host a fault of the network may touch: those of one server."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtests.chaos.site import Site


def port_of(site: Site, protocol: str) -> int:
    """Of the server itself, for that protocol."""
    return int(getattr(site, protocol).rpartition(":")[2])


def refusal(site: Site) -> str | None:
    """Why packets to that server are not to be touched; None where they may be.

    Only packets over loopback, of IPv4: beyond it a rule could reach somebody else.
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
        if not found.is_loopback or found.version != 4:  # noqa: PLR2004 - of IP
            return f"{address} is not an IPv4 address of loopback"
    return None
