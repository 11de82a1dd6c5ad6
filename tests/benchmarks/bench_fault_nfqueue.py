"""Delays by NFQUEUE: how true they are, and how many packets one process can delay."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from delayed import ASKED_SECONDS, errors, round_trip
from sites import EmptySite
from tcp_peers import TcpServer, connect, echo

from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.mechanism import Wanted
from loadtests.chaos.network.nfqueue import Nfqueue
from loadtests.chaos.primitives.processes import new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

_TURNS, _QUICK_TURNS = 500, 50
_BUSY_SECONDS, _QUICK_BUSY_SECONDS = 5.0, 1.0
_CONNECTIONS = 8
_CPU_FIELDS = 11, 13
"""Of /proc/PID/stat after the name: user and system time in clock ticks."""


@contextlib.contextmanager
def _delayed(address: str, seconds: float) -> Iterator[str]:
    """Within, requests to that server are late; the fault's token."""
    if os.geteuid() != 0 or shutil.which("nft") is None:
        raise figures.Skipped("needs root and nft (apt-get install nftables)")
    site = EmptySite(grpc=address, http=address)
    effect = Effect(delay_seconds=seconds, directions="requests")
    reason = Nfqueue().refusal(site, effect)
    if reason is not None:
        raise figures.Skipped(reason)
    record = Nfqueue().prepare(site, Wanted(effect, ("grpc",), new_token()))
    try:
        Nfqueue().inject(record)
        yield record["token"]
    finally:
        Nfqueue().revert(record)


def delay(*, quick: bool = False) -> Iterator[Figure]:
    """What 20 ms asked for add to a round trip over loopback, over 20 ms."""
    turns = _QUICK_TURNS if quick else _TURNS
    with (
        TcpServer(echo) as delayed,
        TcpServer(echo) as beside,
        connect(delayed.address) as late,
        connect(beside.address) as direct,
        _delayed(delayed.address, ASKED_SECONDS),
    ):
        over = [
            round_trip(late) - round_trip(direct) - ASKED_SECONDS for _ in range(turns)
        ]
    yield from errors("fault_nfqueue", over, delay.__doc__ or "")


def cost(*, quick: bool = False) -> Figure:
    """CPU time of the process that delays, for each round trip of 1 kB of eight clients."""
    until = time.monotonic() + (_QUICK_BUSY_SECONDS if quick else _BUSY_SECONDS)
    counts: list[int] = []

    def ask(address: str) -> None:
        count = 0
        with connect(address) as connection:
            while time.monotonic() < until:
                round_trip(connection)
                count += 1
        counts.append(count)

    with TcpServer(echo) as server, _delayed(server.address, 0.001) as token:
        (agent,) = started_with(token)
        before = _cpu_seconds(agent.pid)
        threads = [
            threading.Thread(target=ask, args=(server.address,))
            for _ in range(_CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = _cpu_seconds(agent.pid) - before
    return figures.at_most(
        "fault_nfqueue_cpu",
        1e6 * spent / sum(counts),
        "microseconds",
        None,
        n=sum(counts),
        measured=cost.__doc__ or "",
    )


def _cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(words[field]) for field in _CPU_FIELDS)
    return ticks / os.sysconf("SC_CLK_TCK")
