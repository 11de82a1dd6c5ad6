"""Faults of the network: delay, loss, partition, resets, a narrow link.

All of them act on the fault proxy before the server, and so on the connections through it
alone. Nothing is changed in the kernel: the effects end with the proxy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from loadtests.chaos.faults.fault import Fault
from loadtests.chaos.network.proxy_client import (
    ProxyFailedError,
    ProxyGoneError,
    ask,
)
from loadtests.chaos.network.wire import Directions, Effect
from loadtests.chaos.primitives.process_refs import new_token
from loadtests.errors import FaultFailedError, FaultRefusedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site


class NetworkFault(Fault):
    """A fault of the network for all clients of the fault proxy."""

    def effect(self) -> Effect:
        """Return its effect on the bytes of a connection."""
        raise NotImplementedError

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the proxy's socket, and what to set there."""
        reason = "there is no fault proxy in front of the server"
        if site.proxy is not None:
            try:
                ask(site.proxy.control, {"do": "state"})
            except (ProxyGoneError, ProxyFailedError) as error:
                reason = str(error)
            else:
                return {
                    "token": new_token(),
                    "effect": self.effect().to_record(),
                    "control": str(site.proxy.control),
                }
        raise FaultRefusedError(
            f"network faults cannot be injected for {site.name}: {reason}",
            "put the fault proxy in front of it: `target: {proxy: true}`",
        )

    def inject(self, record: dict[str, Any]) -> None:
        """Set the effect on the proxy."""
        command = {key: record[key] for key in ("token", "effect")}
        try:
            ask(Path(record["control"]), {"do": "set", **command})
        except (ProxyGoneError, ProxyFailedError) as error:
            raise FaultFailedError(str(error)) from error

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a proxy that does not run any more, or has another effect set."""
        try:
            effect = _effect_of(record)
        except (ProxyGoneError, ProxyFailedError) as error:
            return [str(error)]
        if effect != record["effect"]:
            return [f"the fault proxy at {record['control']} has it not set"]
        return []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Clear the effect; without a proxy it has ended already."""
        try:
            ask(Path(record["control"]), {"do": "clear", "token": record["token"]})
        except ProxyGoneError:
            return
        except ProxyFailedError as error:
            raise FaultFailedError(f"{error}; end that proxy") from error

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report the effect on the proxy."""
        try:
            effect = _effect_of(record)
        except ProxyGoneError:
            return []
        except ProxyFailedError as error:
            return [str(error)]
        if effect is None:
            return []
        return [f"the fault proxy at {record['control']} has it set"]


def _effect_of(record: dict[str, Any]) -> dict[str, Any] | None:
    effects = ask(Path(record["control"]), {"do": "state"})
    effect: dict[str, Any] | None = effects.get(record["token"])
    return effect


class NetworkDelay(NetworkFault):
    """A distant server. The delay counts once per round trip, unless for both directions.

    Bytes of a connection stay in order.
    """

    kind: Literal["network_delay"] = "network_delay"
    delay_ms: float = Field(default=50.0, gt=0, le=10_000)
    """Mean delay of packets in each affected direction."""
    jitter_ms: float = Field(default=0.0, ge=0, le=10_000)
    """Uniform variation of the delay, up or down; never below 0."""
    directions: Directions = Field(default="requests")
    """Towards the server, back (`answers`), or both."""

    def effect(self) -> Effect:
        """Return the delay and its variation."""
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

    def effect(self) -> Effect:
        """Return the loss."""
        return Effect(loss_ratio=self.loss_percent / 100, directions=self.directions)


class Partition(NetworkFault):
    """Lost connectivity: packets vanish; connections stay open until a side gives up."""

    kind: Literal["partition"] = "partition"
    directions: Directions = Field(default="both")
    """Towards the server (`requests`), back (`answers`: the work is done, but its
    answer is lost), or both.
    """

    def effect(self) -> Effect:
        """Return the partition."""
        return Effect(partitioned=True, directions=self.directions)


class Reset(NetworkFault):
    """TCP resets, as from a failing load balancer or a full connection table."""

    kind: Literal["reset"] = "reset"
    reset_percent: float = Field(default=100.0, gt=0, le=100)
    """Share of packets that reset their connection, at both ends."""

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

    def effect(self) -> Effect:
        """Return the rate."""
        return Effect(
            bytes_per_second=self.kilobits_per_second * 125, directions=self.directions
        )
