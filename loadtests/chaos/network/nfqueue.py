"""Late, lost and slow packets, decided upon by a process of our own (NFQUEUE).

Rules in a table of our own put the packets of the server's ports aside, each direction in
a queue, and an agent lets them go when they may (`packet_queue`). The rules let pass
what nobody queues: when the agent dies, the fault is over, and nothing hangs.

Where the kernel has no `queue` statement of nftables, iptables' target does the same in
the same table; nft cannot write that rule, so the kernel is told directly.
"""

from __future__ import annotations

import os
import signal
import struct
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from loadtests.chaos.errors import FaultFailedError
from loadtests.chaos.network import packet_queue, ports, tables
from loadtests.chaos.network.effect import DIRECTIONS, Effect
from loadtests.chaos.network.nfnetlink import (
    ACKNOWLEDGE,
    APPEND,
    CREATE,
    Message,
    Netfilter,
    attribute,
    nested,
)
from loadtests.chaos.primitives import agents, programs
from loadtests.chaos.primitives.processes import started_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.network.effect import Direction
    from loadtests.chaos.network.mechanism import Wanted
    from loadtests.chaos.site import Site

Rule = Literal["statement", "target"]

_FREE_QUEUES: Final = 0x1000, 0xFFF0
_LONGEST_SECONDS: Final = 86_400.0
_END_SECONDS: Final = 0.3
_QUEUES: Final = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")
_DROPPED, _NOT_TOLD = 5, 6
"""Columns of it: packets that found the queue full, or its reader's socket."""

# linux/netfilter/nfnetlink.h, nf_tables.h, nf_tables_compat.h
_NFTABLES: Final = 10
_BEGIN, _END = 0x10, 0x11
_NEW_RULE: Final = _NFTABLES << 8 | 6
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_ELEMENT: Final = 1
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_ASK_COMPATIBLE: Final = 11 << 8
_NAME, _REVISION, _INFO = 1, 2, 3
_IS_TARGET: Final = 1
_INET, _IPV4 = 1, 2
# linux/netfilter/xt_NFQUEUE.h
_TARGET: Final = b"NFQUEUE\0"
_TARGET_REVISION: Final = struct.pack("!I", 3)
_TARGET_INFO: Final = struct.Struct("=HHH2x")
_BYPASS: Final = 1


class Nfqueue:
    """Delay, jitter, loss, bandwidth and partition. Packets of a connection stay in order.

    When any chain of anybody's is removed, the kernel drops what waits in queues, as if
    it were lost on the way.
    """

    def refusal(self, site: Site, effect: Effect) -> str | None:
        """Root, nft, and a kernel that can put packets aside."""
        if effect.reset_ratio:
            return "cannot reset connections"
        reason = ports.refusal(site) or packet_queue.refusal()
        if reason is not None:
            return reason
        reason = tables.refusal(_probe(effect, "target"))
        if reason is not None:
            return reason
        if tables.refusal(_probe(effect, "statement")) and not _has_target():
            return "the kernel has neither nftables' queue nor iptables' target NFQUEUE"
        return None

    def prepare(self, site: Site, wanted: Wanted) -> dict[str, Any]:
        """The table and the queues, and how packets come into them here."""
        first, last = _FREE_QUEUES
        drawn = first + zlib.crc32(wanted.token.encode()) % (last - first)
        has_statement = tables.refusal(_probe(wanted.effect, "statement")) is None
        return {
            "token": wanted.token,
            "ports": [ports.port_of(site, each) for each in wanted.protocols],
            "effect": wanted.effect.to_record(),
            "queues": {
                direction: drawn + number
                for number, direction in enumerate(tables.packets([1], wanted.effect))
            },
            "rule": "statement" if has_statement else "target",
        }

    def inject(self, record: dict[str, Any]) -> None:
        """First who takes packets out of the queues, then what puts them in."""
        token = record["token"]
        settings = {key: record[key] for key in ("effect", "queues")}
        agents.start(
            token,
            packet_queue.__name__,
            {**settings, "seed": token},
            longest_seconds=_LONGEST_SECONDS,
        )
        tables.add(token, _ruleset_of(record))
        if record["rule"] == "target":
            _add_targets(token, record["queues"])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """The table, rules of it, who takes packets; and packets lost in the way."""
        each = 2 if record["rule"] == "target" else 1
        found = tables.missing(record["token"], each * len(record["queues"]))
        taken = _taken()
        for direction, number in record["queues"].items():
            if number not in taken:
                found.append(f"nobody delays {direction}: queue {number} is not read")
            elif taken[number]:
                found.append(
                    f"{taken[number]} packets of {direction} too many at once for "
                    f"queue {number}: lost"
                )
        return found

    def revert(self, record: dict[str, Any]) -> None:
        """End the agent, which lets go on what it holds, and remove the table."""
        token = record["token"]
        ending = [each for each in started_with(token) if each.pid != os.getpid()]
        for process in ending:
            process.send(signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        for process in ending:
            process.wait_until(None, max(deadline - time.monotonic(), 0.0))
        programs.end_all(token)
        tables.remove(token)

    def residue(self, record: dict[str, Any]) -> list[str]:
        """The table, and the agent."""
        token = record["token"]
        return [*tables.residue(token), *agents.left(token)]


def _probe(effect: Effect, rule: Rule) -> str:
    """What the fault would add, but for other ports and with nobody at its queues."""
    return _ruleset("probe", [1], effect, dict.fromkeys(DIRECTIONS, 0), rule)


def _ruleset_of(record: dict[str, Any]) -> str:
    return _ruleset(
        record["token"],
        record["ports"],
        Effect.from_record(record["effect"]),
        record["queues"],
        record["rule"],
    )


def _ruleset(
    name: str,
    at: Sequence[int],
    effect: Effect,
    queues: dict[Direction, int],
    rule: Rule,
) -> str:
    found = tables.packets(at, effect)
    if rule == "target":
        jumps = [f"{those} jump {direction}" for direction, those in found.items()]
        return tables.ruleset(name, jumps, targets=list(found))
    return tables.ruleset(
        name,
        [
            f"{those} queue flags bypass to {queues[direction]}"
            for direction, those in found.items()
        ],
    )


def _has_target() -> bool:
    """Whether iptables' target may stand in rules of nftables here."""
    asked = (
        attribute(_NAME, _TARGET),
        attribute(_REVISION, _TARGET_REVISION),
        attribute(_INFO, struct.pack("!I", _IS_TARGET)),
    )
    message = Message(_ASK_COMPATIBLE, b"".join(asked), ACKNOWLEDGE, _IPV4)
    try:
        with Netfilter() as netfilter:
            netfilter.ask([message])
    except OSError:
        return False
    return True


def _add_targets(token: str, queues: dict[str, int]) -> None:
    """One rule in each direction's chain: all that comes here goes into its queue."""
    rules = [
        Message(
            _NEW_RULE,
            attribute(_RULE_TABLE, token.encode(), b"\0")
            + attribute(_RULE_CHAIN, direction.encode(), b"\0")
            + nested(_RULE_EXPRESSIONS, _target(number)),
            ACKNOWLEDGE | CREATE | APPEND,
            _INET,
        )
        for direction, number in queues.items()
    ]
    begin, end = (Message(each, resource=_NFTABLES) for each in (_BEGIN, _END))
    try:
        with Netfilter() as netfilter:
            netfilter.ask([begin, *rules, end])
    except OSError as error:
        raise FaultFailedError(
            f"no rule for queues in the nftables table {token}: {error.strerror}"
        ) from error


def _target(queue: int) -> bytes:
    data = nested(
        _EXPRESSION_DATA,
        attribute(_NAME, _TARGET),
        attribute(_REVISION, _TARGET_REVISION),
        attribute(_INFO, _TARGET_INFO.pack(queue, 1, _BYPASS)),
    )
    return nested(_ELEMENT, attribute(_EXPRESSION_NAME, b"target\0"), data)


def _taken() -> dict[int, int]:
    """How many packets were lost by each queue that somebody reads, by its number."""
    try:
        lines = _QUEUES.read_text("ascii").splitlines()
    except OSError:
        return {}
    rows = [[int(word) for word in line.split()] for line in lines]
    return {row[0]: row[_DROPPED] + row[_NOT_TOLD] for row in rows}
