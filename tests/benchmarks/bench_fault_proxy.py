"""The fault proxy of chaos experiments: what it costs, and how true its delay is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import figures
from delayed import ASKED_SECONDS, errors, round_trip
from tcp_peers import TcpServer, connect, echo

from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.proxy_control import ask
from loadtests.chaos.network.proxy_process import FaultProxy

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from figures import Figure

_TURNS, _QUICK_TURNS = 2000, 200
_DELAYED, _QUICK_DELAYED = 500, 50


@contextlib.contextmanager
def _connections() -> Iterator[tuple[FaultProxy, socket.socket, socket.socket]]:
    """The proxy, a connection by it, and one to the same server without it."""
    with (
        TcpServer(echo) as server,
        FaultProxy(grpc=server.address, http=server.address) as proxy,
        connect(proxy.control.grpc) as proxied,
        connect(server.address) as direct,
    ):
        for connection in (proxied, direct):
            for _ in range(50):
                round_trip(connection)
        yield proxy, proxied, direct


def neutral(*, quick: bool = False) -> Figure:
    """A round trip of 1 kB by the proxy that does nothing, less one without it."""
    turns = _QUICK_TURNS if quick else _TURNS
    with _connections() as (_, proxied, direct):
        added = [round_trip(proxied) - round_trip(direct) for _ in range(turns)]
    return figures.at_most(
        "fault_proxy_neutral",
        **{key: 1e3 * value for key, value in figures.median(added).items()},
        unit="milliseconds",
        goal=1.0,
        n=turns,
        measured=neutral.__doc__ or "",
    )


def delay(*, quick: bool = False) -> Iterator[Figure]:
    """What 20 ms asked for add to a round trip by the proxy, over 20 ms."""
    turns = _QUICK_DELAYED if quick else _DELAYED
    effect = Effect(delay_seconds=ASKED_SECONDS, directions="requests")
    with _connections() as (proxy, proxied, _):
        control = proxy.control.control
        asked = {
            "do": "set",
            "token": "bench",
            "effect": effect.to_record(),
            "protocols": ["grpc"],
        }
        over = []
        for _ in range(turns):
            ask(control, {"do": "clear", "token": "bench"})
            without = round_trip(proxied)
            ask(control, asked)
            over.append(round_trip(proxied) - without - ASKED_SECONDS)
    yield from errors("fault_proxy", over, delay.__doc__ or "")
