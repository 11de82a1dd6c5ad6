"""Faults of the network: delay, jitter, loss, partition, resets, a narrow link.

They share the server's ports and the mechanism, which is netem, nftables or the proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.fault import Fault, FaultFailedError
from loadtests.chaos.network.effect import Directions, Effect, choose
from loadtests.chaos.network.kernel_mechanisms import Netem, Nft
from loadtests.chaos.network.proxy_client import ThroughProxy
from loadtests.chaos.primitives.process_refs import new_token

if TYPE_CHECKING:
    from loadtests.chaos.network.effect import Mechanism
    from loadtests.chaos.site import Site

_MECHANISMS: Final[dict[str, Mechanism]] = {
    "netem": Netem(),
    "nft": Nft(),
    "proxy": ThroughProxy(),
}
"""Mechanisms in the order in which `auto` tries them: the least invasive first."""


class NetworkFault(Fault):
    """A fault of the network to the server: for all clients, or those of the proxy."""

    mechanism: Literal["auto", "netem", "nft", "proxy"] = Field(default="auto")
    """`netem`: queueing disciplines of the kernel on loopback (root). `nft`: rules of
    nftables on loopback (root), which drop and reset and cannot delay. `proxy`: the TCP
    fault proxy in front of the server. `auto`: the first of them that works here."""
    protocols: tuple[Literal["grpc", "http"], ...] = Field(
        default=("grpc", "http"), min_length=1
    )
    """The server's ports that are affected."""

    def effect(self) -> Effect:
        """Return its effect on packets."""
        raise NotImplementedError

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the mechanism, and its parameters."""
        names = list(_MECHANISMS) if self.mechanism == "auto" else [self.mechanism]
        name = choose(_MECHANISMS, names, site, self.effect())
        protocols, token = tuple(dict.fromkeys(self.protocols)), new_token()
        return {
            "mechanism": name,
            "token": token,
            "effect": self.effect().to_record(),
            **_MECHANISMS[name].prepare(site, protocols, token),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Make the network bad."""
        _way(record).inject(record)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report rules, disciplines or settings that are not there."""
        return _way(record).missing(record)

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Make it good."""
        _way(record).revert(record)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report rules, disciplines or settings that are there."""
        return _way(record).residue(record)


class NetworkDelay(NetworkFault):
    """A distant server. The delay counts once per round trip, unless for both directions."""

    kind: Literal["network_delay"] = "network_delay"
    delay_ms: float = Field(default=50.0, gt=0, le=10_000)
    """Delay of packets in each affected direction."""
    directions: Directions = Field(default="requests")
    """Towards the server, back (`answers`), or both."""

    strength: ClassVar[str | None] = "delay_ms"

    def effect(self) -> Effect:
        """Return the delay."""
        return Effect(delay_seconds=self.delay_ms / 1000, directions=self.directions)


class NetworkJitter(NetworkFault):
    """A shared link: a delay, more or less. Bytes of a connection stay in order."""

    kind: Literal["network_jitter"] = "network_jitter"
    jitter_ms: float = Field(default=20.0, gt=0, le=10_000)
    """Uniform variation of the delay, up or down."""
    delay_ms: float = Field(default=20.0, ge=0, le=10_000)
    """Mean delay. Packets with a negative delay arrive at once."""
    directions: Directions = Field(default="requests")
    """Towards the server, back (`answers`), or both."""

    strength: ClassVar[str | None] = "jitter_ms"

    def effect(self) -> Effect:
        """Return the delay and its spread."""
        return Effect(
            delay_seconds=self.delay_ms / 1000,
            jitter_seconds=self.jitter_ms / 1000,
            directions=self.directions,
        )


class NetworkLoss(NetworkFault):
    """Lost packets: nothing fails, much is late; a retransmission takes 200 ms or more."""

    kind: Literal["network_loss"] = "network_loss"
    loss_percent: float = Field(default=5.0, gt=0, le=90)
    """Share of all packets, drawn independently."""
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`), or both."""

    strength: ClassVar[str | None] = "loss_percent"

    def effect(self) -> Effect:
        """Return the loss."""
        return Effect(loss_ratio=self.loss_percent / 100, directions=self.directions)


class Partition(NetworkFault):
    """Lost connectivity: packets vanish; connections stay open until a side gives up."""

    kind: Literal["partition"] = "partition"
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`: the work is done, but its answer is
    lost), or both.
    """

    def effect(self) -> Effect:
        """Return the partition."""
        return Effect(partitioned=True, directions=self.directions)


class Reset(NetworkFault):
    """TCP resets, as from a failing load balancer or a full connection table."""

    kind: Literal["reset"] = "reset"
    reset_percent: float = Field(default=100.0, gt=0, le=100)
    """Share of packets that reset their connection, at both ends."""

    strength: ClassVar[str | None] = "reset_percent"

    def effect(self) -> Effect:
        """Return the resets."""
        return Effect(reset_ratio=self.reset_percent / 100)


class Bandwidth(NetworkFault):
    """A narrow link, shared by all connections; each direction by itself."""

    kind: Literal["bandwidth"] = "bandwidth"
    kilobits_per_second: float = Field(default=512.0, ge=8, le=100_000_000)
    """Limit in each direction. 1 kilobit is 1000 bits."""
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`), or both."""

    strength: ClassVar[str | None] = "kilobits_per_second"

    def effect(self) -> Effect:
        """Return the rate."""
        return Effect(
            bytes_per_second=self.kilobits_per_second * 125, directions=self.directions
        )


def _way(record: dict[str, Any]) -> Mechanism:
    name = record["mechanism"]
    found = _MECHANISMS.get(name)
    if found is None:
        raise FaultFailedError(
            f"found no mechanism {name!r} in this version; undo the fault with the "
            "version that injected it"
        )
    return found
