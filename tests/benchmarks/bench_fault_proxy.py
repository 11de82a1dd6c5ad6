"""The fault proxy of chaos experiments: what it costs, and how true its delay is."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import figures
import numpy as np
from tcp_peers import TcpServer, connect, echo, receive

from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.proxy_client import FaultProxy, ask, fault_proxy

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from figures import Figure

_TURNS, _QUICK_TURNS = 2000, 200
_DELAYED, _QUICK_DELAYED = 500, 50
_ASKED_SECONDS: Final = 0.02
_MESSAGE: Final = bytes(1000)


@contextlib.contextmanager
def _connections() -> Iterator[tuple[FaultProxy, socket.socket, socket.socket]]:
    """The proxy, a connection by it, and one to the same server without it."""
    with (
        TcpServer(echo) as server,
        fault_proxy(grpc=server.address, http=server.address) as proxy,
        connect(proxy.control.grpc) as proxied,
        connect(server.address) as direct,
    ):
        for connection in (proxied, direct):
            for _ in range(50):
                _round_trip(connection)
        yield proxy, proxied, direct


def neutral(*, quick: bool = False) -> Figure:
    """A round trip of 1 kB by the proxy that does nothing, less one without it."""
    turns = _QUICK_TURNS if quick else _TURNS
    with _connections() as (_, proxied, direct):
        added = [_round_trip(proxied) - _round_trip(direct) for _ in range(turns)]
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
    effect = Effect(delay_seconds=_ASKED_SECONDS, directions="requests")
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
            without = _round_trip(proxied)
            ask(control, asked)
            over.append(_round_trip(proxied) - without - _ASKED_SECONDS)
    yield from _errors(over, delay.__doc__ or "")


def _round_trip(connection: socket.socket) -> float:
    """Seconds of 1 kB to an echo and back."""
    started = time.perf_counter()
    connection.sendall(_MESSAGE)
    receive(connection, len(_MESSAGE))
    return time.perf_counter() - started


def _errors(over_seconds: Sequence[float], measured: str) -> Iterator[Figure]:
    """Report by how much round trips exceeded the delay: the median and the tail."""
    over = [1e3 * seconds for seconds in over_seconds]
    yield figures.at_most(
        "fault_proxy_delay_error",
        **figures.median(over),
        unit="milliseconds",
        goal=2.0,
        n=len(over),
        measured=measured,
    )
    yield figures.at_most(
        "fault_proxy_delay_error_p99",
        float(np.percentile(over, 99)),
        "milliseconds",
        None,
        n=len(over),
        measured="the 99th percentile of the same",
    )
