"""Tables of nftables, one for a fault: named by its token, for the server's ports alone.

Hooked before all others, where packets come in over loopback, in both directions. Set as
one transaction: a table is there as a whole or not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network.effect import DIRECTIONS
from loadtests.chaos.primitives import programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.network.effect import Direction, Effect

FAMILY: Final = "inet"
"""IPv4 and IPv6."""
_MATCHES: Final[dict[Direction, str]] = {
    "requests": "tcp dport",
    "answers": "tcp sport",
}


def packets(at: Sequence[int], effect: Effect) -> dict[Direction, str]:
    """What tells the packets of each direction that the effect is for."""
    found = ", ".join(map(str, at))
    return {
        direction: f"iif lo {_MATCHES[direction]} {{ {found} }}"
        for direction in DIRECTIONS
        if effect.applies_to(direction)
    }


def ruleset(name: str, rules: Sequence[str], *, targets: Sequence[str] = ()) -> str:
    """A table as nft reads it; `targets` are empty chains to which rules may jump."""
    chains = "".join(f"  chain {each} {{\n  }}\n" for each in targets)
    listed = "\n    ".join(rules)
    return f"""\
table {FAMILY} {name} {{
{chains}  chain incoming {{
    type filter hook input priority -300; policy accept;
    {listed}
  }}
}}
"""


def refusal(text: str) -> str | None:
    """Why that is no table here; None where it is. Touches nothing.

    Tried in a network of its own, that goes with the command.
    """
    if programs.find("nft") is None:
        return "nft is not installed (apt-get install nftables)"
    tried = programs.attempt("", ["unshare", "-n", "nft", "-f", "-"], given=text)
    if not tried.returncode:
        return None
    found = tried.stderr.strip().splitlines()[:1]
    return f"nft does not work here ({' '.join(found)})"


def add(token: str, text: str) -> None:
    """Add a table.

    Raises:
        FaultFailedError: it could not be added.
    """
    programs.run(token, ["nft", "-f", "-"], given=text)


def missing(token: str, wanted: int) -> list[str]:
    """The table, or rules of it, of which there are so many."""
    listed = programs.attempt(token, ["nft", "-j", "list", "table", FAMILY, token])
    if listed.returncode:
        return [f"there is no nftables table {token}"]
    found = sum("rule" in entry for entry in json.loads(listed.stdout)["nftables"])
    if found != wanted:
        return [f"the nftables table {token} has {found} rules of {wanted}"]
    return []


def remove(token: str) -> None:
    """Remove the table, if it is there.

    Raises:
        FaultFailedError: it could not be removed; how to.
    """
    command = ["nft", "delete", "table", FAMILY, token]
    if programs.attempt(token, command).returncode and _there(token):
        raise FaultFailedError(
            f"the nftables table {token} cannot be removed; as root: "
            f"{' '.join(command)}"
        )


def residue(token: str) -> list[str]:
    """The table."""
    return [f"the nftables table {token} is there"] if _there(token) else []


def _there(token: str) -> bool:
    listed = programs.run(token, ["nft", "-j", "list", "tables"])
    return any(
        entry.get("table", {}).get("name") == token
        for entry in json.loads(listed)["nftables"]
    )
