"""Lost and refused packets: rules of nftables in a table of our own.

The table is named by the fault's token and hooked before all others, where packets come
in over loopback; it names the server's ports and nothing else. Set as one transaction:
it is there as a whole or not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network import ports
from loadtests.chaos.network.effect import DIRECTIONS, Effect
from loadtests.chaos.primitives import programs

if TYPE_CHECKING:
    from loadtests.chaos.network.effect import Direction
    from loadtests.chaos.network.mechanism import Wanted
    from loadtests.chaos.site import Site

_FAMILY: Final = "inet"
_GRAIN: Final = 10_000
"""What nftables draws of: ratios to a hundredth of a percent."""
_MATCHES: Final[dict[Direction, str]] = {
    "requests": "tcp dport",
    "answers": "tcp sport",
}


class Nft:
    """Loss, partition and reset."""

    def refusal(self, site: Site, effect: Effect) -> str | None:
        """Root, nft, a kernel with nf_tables, and an effect that dropping can have."""
        if effect.delay_seconds or effect.jitter_seconds:
            return "cannot delay packets"
        if effect.bytes_per_second is not None:
            # A packet over loopback may have 64 KiB, more than any limit would let by.
            return "cannot make a link narrow"
        reason = ports.refusal(site)
        if reason is not None:
            return reason
        if programs.find("nft") is None:
            return "nft is not installed (apt-get install nftables)"
        # In a network of its own, that goes with the command.
        table = _ruleset("probe", [1], effect)
        tried = programs.attempt("", ["unshare", "-n", "nft", "-f", "-"], given=table)
        if tried.returncode:
            found = tried.stderr.strip().splitlines()[:1]
            return f"nft does not work here ({' '.join(found)})"
        return None

    def prepare(self, site: Site, wanted: Wanted) -> dict[str, Any]:
        """The table, by its name and what is in it."""
        found = [ports.port_of(site, protocol) for protocol in wanted.protocols]
        return {
            "token": wanted.token,
            "ports": found,
            "effect": wanted.effect.to_record(),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Add the table."""
        ruleset = _ruleset(
            record["token"], record["ports"], Effect.from_record(record["effect"])
        )
        programs.run(record["token"], ["nft", "-f", "-"], given=ruleset)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """The table, or rules of it."""
        token = record["token"]
        wanted = len(_rules(record["ports"], Effect.from_record(record["effect"])))
        listed = programs.attempt(token, ["nft", "-j", "list", "table", _FAMILY, token])
        if listed.returncode:
            return [f"there is no nftables table {token}"]
        found = sum("rule" in entry for entry in json.loads(listed.stdout)["nftables"])
        if found != wanted:
            return [f"the nftables table {token} has {found} rules of {wanted}"]
        return []

    def revert(self, record: dict[str, Any]) -> None:
        """Remove the table."""
        token = record["token"]
        programs.end_all(token)
        if not _there(token):
            return
        command = ["nft", "delete", "table", _FAMILY, token]
        if programs.attempt(token, command).returncode and _there(token):
            raise FaultFailedError(
                f"the nftables table {token} cannot be removed; as root: "
                f"{' '.join(command)}"
            )

    def residue(self, record: dict[str, Any]) -> list[str]:
        """The table."""
        token = record["token"]
        return [f"the nftables table {token} is there"] if _there(token) else []


def _there(token: str) -> bool:
    listed = programs.run(token, ["nft", "-j", "list", "tables"])
    return any(
        entry.get("table", {}).get("name") == token
        for entry in json.loads(listed)["nftables"]
    )


def _ruleset(name: str, at: list[int], effect: Effect) -> str:
    rules = "\n    ".join(_rules(at, effect))
    return f"""\
table {_FAMILY} {name} {{
  chain incoming {{
    type filter hook input priority -300; policy accept;
    {rules}
  }}
}}
"""


def _rules(at: list[int], effect: Effect) -> list[str]:
    found = ", ".join(map(str, at))
    return [
        f"iif lo {_MATCHES[direction]} {{ {found} }} {statement}"
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
