"""What the faults of the network share: which ports, and which way it is done here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.base import Fault
from loadtests.chaos.network.mechanism import Wanted, choose
from loadtests.chaos.network.netem import Netem
from loadtests.chaos.network.nfqueue import Nfqueue
from loadtests.chaos.network.nft import Nft
from loadtests.chaos.network.through_proxy import ThroughProxy
from loadtests.chaos.primitives.processes import new_token

if TYPE_CHECKING:
    from loadtests.chaos.network.effect import Effect
    from loadtests.chaos.network.mechanism import Mechanism
    from loadtests.chaos.site import Site

_MECHANISMS: Final[dict[str, Mechanism]] = {
    "netem": Netem(),
    "nft": Nft(),
    "nfqueue": Nfqueue(),
    "proxy": ThroughProxy(),
}
"""In the order in which `auto` looks at them: what is least in the way first."""


class NetworkFault(Fault):
    """The network between the server and everybody, or those who go by the proxy."""

    mechanism: Literal["auto", "netem", "nft", "nfqueue", "proxy"] = Field(
        default="auto"
    )
    """`netem`: disciplines of the kernel on loopback (root). `nft`: rules of nftables on
    loopback (root), which drop and reset and cannot delay. `nfqueue`: a process that the
    kernel asks about every packet (root), which cannot reset. `proxy`: the TCP fault proxy
    before the server. `auto`: the first of them that can do it here."""
    protocols: tuple[Literal["grpc", "http"], ...] = Field(
        default=("grpc", "http"), min_length=1
    )
    """Which of the server's ports."""

    def effect(self) -> Effect:
        """What it does to packets."""
        raise NotImplementedError

    def require(self, site: Site) -> None:
        """One way to do it."""
        self._chosen(site)

    def prepare(self, site: Site) -> dict[str, Any]:
        """The way, and what that needs."""
        name = self._chosen(site)
        wanted = Wanted(
            self.effect(), tuple(dict.fromkeys(self.protocols)), new_token()
        )
        return {"mechanism": name, **_MECHANISMS[name].prepare(site, wanted)}

    def inject(self, record: dict[str, Any]) -> None:
        """Make the network bad."""
        _way(record).inject(record)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Rules, disciplines or settings that are not there."""
        return _way(record).missing(record)

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Make it good."""
        _way(record).revert(record)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Rules, disciplines or settings that are there."""
        return _way(record).residue(record)

    def _chosen(self, site: Site) -> str:
        names = list(_MECHANISMS) if self.mechanism == "auto" else [self.mechanism]
        return choose(_MECHANISMS, names, site, self.effect())


def _way(record: dict[str, Any]) -> Mechanism:
    return _MECHANISMS[record["mechanism"]]
