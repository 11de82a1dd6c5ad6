"""Lost and refused packets: rules of nftables in a table of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.network import ports, tables
from loadtests.chaos.network.effect import Effect
from loadtests.chaos.primitives import programs

if TYPE_CHECKING:
    from loadtests.chaos.network.mechanism import Wanted
    from loadtests.chaos.site import Site

_GRAIN: Final = 10_000
"""What nftables draws of: ratios to a hundredth of a percent."""


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
        return tables.refusal(tables.ruleset("probe", _rules([1], effect)))

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
        token = record["token"]
        tables.add(token, tables.ruleset(token, _rules_of(record)))

    def missing(self, record: dict[str, Any]) -> list[str]:
        """The table, or rules of it."""
        return tables.missing(record["token"], len(_rules_of(record)))

    def revert(self, record: dict[str, Any]) -> None:
        """Remove the table."""
        programs.end_all(record["token"])
        tables.remove(record["token"])

    def residue(self, record: dict[str, Any]) -> list[str]:
        """The table."""
        return tables.residue(record["token"])


def _rules_of(record: dict[str, Any]) -> list[str]:
    return _rules(record["ports"], Effect.from_record(record["effect"]))


def _rules(at: list[int], effect: Effect) -> list[str]:
    return [
        f"{those} {statement}"
        for those in tables.packets(at, effect).values()
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
