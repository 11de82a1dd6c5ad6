"""Late, lost, slow and refused packets on loopback, as the kernel has them.

netem: a class of htb for each direction, with netem inside where packets are to be late or
lost, and filters that send the server's ports there; all else passes as before. The root
has a handle of its own; where loopback has a discipline already, it is refused.

nft: a table of nftables named by the fault's token, with the server's ports alone. It hooks
in before all others, where packets arrive over loopback, in both directions. nft adds it in
one transaction: it is there as a whole or not at all.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.network.effect import (
    DIRECTIONS,
    Effect,
    loopback_refusal,
    ports_of,
)
from loadtests.chaos.primitives import programs
from loadtests.errors import FaultFailedError

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
"""Largest packet over loopback; a smaller limit would never let it pass."""
_SHOW: Final = ("tc", "-j", "qdisc", "show", "dev", "lo")
_FAMILY: Final = "inet"
"""IPv4 and IPv6."""
_NFT_MATCHES: Final[dict[Direction, str]] = {
    "requests": "tcp dport",
    "answers": "tcp sport",
}
_GRAIN: Final = 10_000
"""Ratios are drawn to a hundredth of a percent."""


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
        programs.stop(record["token"])
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
    """Return the queueing discipline inside a class."""
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


class Nft:
    """Loss, partition and reset."""

    def refusal(self, site: Site, effect: Effect) -> str | None:
        """Require root, nft, a kernel with nf_tables, and an effect of dropped packets.

        Tries the table in a network namespace that ends with the command.
        """
        if effect.delay_seconds or effect.jitter_seconds:
            return "cannot delay packets"
        if effect.bytes_per_second is not None:
            # A packet over loopback may have 64 KiB, more than any limit would let by.
            return "cannot make a link narrow"
        reason = loopback_refusal(site)
        if reason is not None:
            return reason
        if programs.find("nft") is None:
            return "nft is not installed (apt-get install nftables)"
        text = _ruleset("probe", _rules([1], effect))
        tried = programs.attempt("", ["unshare", "-n", "nft", "-f", "-"], given=text)
        if not tried.returncode:
            return None
        found = tried.stderr.strip().splitlines()[:1]
        return f"nft does not work here ({' '.join(found)})"

    def prepare(
        self,
        site: Site,
        protocols: Sequence[str],
        token: str,  # noqa: ARG002 - the table is named by it
    ) -> dict[str, Any]:
        """Return the ports."""
        return {"ports": ports_of(site, protocols)}

    def inject(self, record: dict[str, Any]) -> None:
        """Add the table."""
        token = record["token"]
        table = _ruleset(token, _rules_of(record))
        programs.run(token, ["nft", "-f", "-"], given=table)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report the table, or how many of its rules are missing."""
        token, wanted = record["token"], len(_rules_of(record))
        listed = programs.attempt(token, ["nft", "-j", "list", "table", _FAMILY, token])
        if listed.returncode:
            return [f"there is no nftables table {token}"]
        found = sum("rule" in entry for entry in json.loads(listed.stdout)["nftables"])
        if found != wanted:
            return [f"the nftables table {token} has {found} rules of {wanted}"]
        return []

    def revert(self, record: dict[str, Any]) -> None:
        """End programs started for the fault, and remove the table."""
        token = record["token"]
        programs.stop(token)
        command = ["nft", "delete", "table", _FAMILY, token]
        if programs.attempt(token, command).returncode and _exists(token):
            raise FaultFailedError(
                f"the nftables table {token} cannot be removed; as root: "
                f"{' '.join(command)}"
            )

    def residue(self, record: dict[str, Any]) -> list[str]:
        """Report the table, and programs started for the fault."""
        token = record["token"]
        found = [f"the nftables table {token} is there"] if _exists(token) else []
        return [*found, *programs.left(token)]


def _exists(token: str) -> bool:
    listed = programs.run("", ["nft", "-j", "list", "tables"])
    return any(
        entry.get("table", {}).get("name") == token
        for entry in json.loads(listed)["nftables"]
    )


def _ruleset(name: str, rules: list[str]) -> str:
    listed = "\n    ".join(rules)
    return f"""\
table {_FAMILY} {name} {{
  chain incoming {{
    type filter hook input priority -300; policy accept;
    {listed}
  }}
}}
"""


def _rules_of(record: dict[str, Any]) -> list[str]:
    return _rules(record["ports"], Effect.from_record(record["effect"]))


def _rules(at: list[int], effect: Effect) -> list[str]:
    listed = ", ".join(map(str, at))
    return [
        f"iif lo {_NFT_MATCHES[direction]} {{ {listed} }} {statement}"
        for direction in DIRECTIONS
        if effect.applies_to(direction)
        for statement in _statements(effect)
    ]


def _statements(effect: Effect) -> list[str]:
    statements = []
    if effect.partitioned:
        statements.append("counter drop")
    if effect.loss_ratio:
        statements.append(f"{_share(effect.loss_ratio)}counter drop")
    if effect.reset_ratio:
        # The reset itself has to pass.
        share = _share(effect.reset_ratio)
        statements.append(f"tcp flags & rst == 0 {share}counter reject with tcp reset")
    return statements


def _share(ratio: float) -> str:
    drawn = round(ratio * _GRAIN)
    return "" if drawn >= _GRAIN else f"numgen random mod {_GRAIN} < {drawn} "
