"""Delays that were asked for, and how far they are from what comes of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import figures
import numpy as np
from tcp_peers import receive

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from figures import Figure

ASKED_SECONDS: Final = 0.02
_MESSAGE: Final = bytes(1000)


def round_trip(connection: socket.socket) -> float:
    """Seconds of 1 kB to an echo and back."""
    started = time.perf_counter()
    connection.sendall(_MESSAGE)
    receive(connection, len(_MESSAGE))
    return time.perf_counter() - started


def errors(name: str, over_seconds: Sequence[float], measured: str) -> Iterator[Figure]:
    """How far round trips were over what was asked for: the median and the worst."""
    over = [1e3 * seconds for seconds in over_seconds]
    yield figures.at_most(
        f"{name}_delay_error",
        **figures.median(over),
        unit="milliseconds",
        goal=2.0,
        n=len(over),
        measured=measured,
    )
    yield figures.at_most(
        f"{name}_delay_error_p99",
        float(np.percentile(over, 99)),
        "milliseconds",
        None,
        n=len(over),
        measured="the 99th percentile of the same",
    )
