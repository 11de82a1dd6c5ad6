"""Late, lost and slow packets: queueing disciplines on loopback, as the kernel has them.

A class of htb for each direction, with netem inside where packets are to be late or
lost, and filters that send the server's ports there; all else passes as before. The
root is told by a handle of its own, and refused where loopback has one already.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network.effect import DIRECTIONS, Effect
from loadtests.chaos.network.mechanism import loopback_refusal, ports_of
from loadtests.chaos.primitives import agents, programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.network.effect import Direction
    from loadtests.chaos.site import Site

_MATCHES: Final[dict[Direction, str]] = {"requests": "dport", "answers": "sport"}
_FREE_HANDLES: Final = 0x1000, 0xFFF0
_UNLIMITED_BITS: Final = 100_000_000_000
_BURST_BYTES: Final = 3000
_QUEUE_PACKETS: Final = 10_000
_QUEUE_SECONDS: Final = 0.2
_LARGEST_PACKET_BYTES: Final = 66_000
"""Over loopback, or it would never get through."""
_SHOW: Final = ("tc", "-j", "qdisc", "show", "dev", "lo")


class Netem:
    """Delay, jitter, loss and partition by netem, bandwidth by htb."""

    def refusal(self, site: Site, effect: Effect) -> str | None:
        """Root, tc, a kernel that has the disciplines, and a loopback without any."""
        if effect.reset_ratio:
            return "cannot reset connections"
        reason = loopback_refusal(site, versions=(4,))
        if reason is not None:
            return reason
        if programs.find("tc") is None:
            return "tc is not installed (apt-get install iproute2)"
        # In a network of its own, that goes with the command.
        tried = programs.attempt(
            "", ["unshare", "-n", "tc", "-batch", "-"], given=_batch(1, [1], effect)
        )
        if tried.returncode:
            found = tried.stderr.strip().splitlines()[:1]
            return (
                f"the kernel refuses it ({' '.join(found)}); `modprobe sch_netem` and "
                "`modprobe sch_htb` load what it needs"
            )
        root = _root()
        if root.get("kind") not in {None, "noqueue"}:
            return f"loopback has a {root['kind']} discipline of somebody else's"
        return None

    def prepare(
        self, site: Site, protocols: Sequence[str], token: str
    ) -> dict[str, Any]:
        """Return the root's handle, and the ports below it."""
        first, last = _FREE_HANDLES
        drawn = zlib.crc32(token.encode()) % (last - first)
        return {"handle": first + drawn, "ports": ports_of(site, protocols)}

    def inject(self, record: dict[str, Any]) -> None:
        """Add the root, then classes, then the filters that send packets there."""
        effect = Effect.from_record(record["effect"])
        batch = _batch(record["handle"], record["ports"], effect)
        programs.run(record["token"], ["tc", "-batch", "-"], given=batch)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """The root, or filters below it."""
        handle = f"{record['handle']:x}:"
        if _root().get("handle") != handle:
            return [f"loopback has no discipline {handle}"]
        effect = Effect.from_record(record["effect"])
        wanted = len(record["ports"]) * sum(map(effect.applies_to, DIRECTIONS))
        shown = programs.run(
            record["token"], ["tc", "filter", "show", "dev", "lo", "parent", handle]
        )
        found = shown.count("flowid")
        if found != wanted:
            return [f"discipline {handle} of loopback has {found} filters of {wanted}"]
        return []

    def revert(self, record: dict[str, Any]) -> None:
        """Remove the root, and with it all below it."""
        agents.stop(record["token"])
        if not self.residue(record):
            return
        command = ["tc", "qdisc", "del", "dev", "lo", "root"]
        if programs.attempt(record["token"], command).returncode and self.residue(
            record
        ):
            raise FaultFailedError(
                f"discipline {record['handle']:x}: of loopback cannot be removed; "
                f"as root: {' '.join(command)}"
            )

    def residue(self, record: dict[str, Any]) -> list[str]:
        """The root."""
        handle = f"{record['handle']:x}:"
        if _root().get("handle") == handle:
            return [f"loopback has the discipline {handle}"]
        return []


def _root() -> dict[str, Any]:
    """The root discipline of loopback; empty where there is none, or no tc."""
    if programs.find("tc") is None:
        return {}
    shown: list[dict[str, Any]] = json.loads(programs.run("", _SHOW) or "[]")
    return next((entry for entry in shown if entry.get("root")), {})


def _batch(handle: int, at: list[int], effect: Effect) -> str:
    root = f"{handle:x}:"
    lines = [f"qdisc add dev lo root handle {root} htb default 0"]
    filters = []
    for number, direction in enumerate(DIRECTIONS, start=1):
        if not effect.applies_to(direction):
            continue
        place = f"{root}{number}"
        rate = _UNLIMITED_BITS
        if effect.bytes_per_second is not None:
            rate = round(effect.bytes_per_second * 8)
        lines.append(
            f"class add dev lo parent {root} classid {place} htb rate {rate}bit "
            f"burst {_BURST_BYTES}b cburst {_BURST_BYTES}b quantum {_BURST_BYTES}"
        )
        lines.append(f"qdisc add dev lo parent {place} {_inside(effect)}")
        filters += [
            f"filter add dev lo parent {root} protocol ip prio 1 u32 "
            f"match ip {_MATCHES[direction]} {port} 0xffff flowid {place}"
            for port in at
        ]
    return "\n".join([*lines, *filters, ""])


def _inside(effect: Effect) -> str:
    """Return what a class queues in."""
    words = []
    if effect.delay_seconds or effect.jitter_seconds:
        words += ["delay", f"{effect.delay_seconds * 1e6:.0f}us"]
        if effect.jitter_seconds:
            words.append(f"{effect.jitter_seconds * 1e6:.0f}us")
    if effect.partitioned or effect.loss_ratio:
        ratio = 1.0 if effect.partitioned else effect.loss_ratio
        words += ["loss", f"{100 * ratio:.4f}%"]
    if words:
        return " ".join(["netem", *words, "limit", str(_QUEUE_PACKETS)])
    # A deep queue would be a delay of its own, long after the fault too: what is in it
    # is lost with it, and TCP has learnt to wait.
    rate = effect.bytes_per_second or 0.0
    return f"bfifo limit {max(round(rate * _QUEUE_SECONDS), _LARGEST_PACKET_BYTES)}"
