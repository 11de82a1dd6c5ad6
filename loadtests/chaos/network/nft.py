"""Lost and refused packets: rules of nftables in a table of the fault's own.

The table is named by the fault's token and matches the server's ports alone. It hooks in
before all others, where packets arrive over loopback, in both directions. nft adds it in
one transaction: it is there as a whole or not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network.effect import DIRECTIONS, Effect
from loadtests.chaos.network.mechanism import loopback_refusal, ports_of
from loadtests.chaos.primitives import agents, programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.network.effect import Direction
    from loadtests.chaos.site import Site

_FAMILY: Final = "inet"
"""IPv4 and IPv6."""
_MATCHES: Final[dict[Direction, str]] = {
    "requests": "tcp dport",
    "answers": "tcp sport",
}
_GRAIN: Final = 10_000
"""Ratios are drawn to a hundredth of a percent."""


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
        agents.stop(token)
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
        return [*found, *agents.left(token)]


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
        f"iif lo {_MATCHES[direction]} {{ {listed} }} {statement}"
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
