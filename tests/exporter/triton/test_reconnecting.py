"""How soon a client tries again to reach a server that was away."""

from __future__ import annotations

import contextlib
import statistics
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tcp_peers import TcpServer
from waiting import patience

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    import socket

ATTEMPTS = 10


def test_a_server_that_stays_away_is_tried_no_less_often() -> None:
    came: list[float] = []

    def end(connection: socket.socket) -> None:
        came.append(time.monotonic())
        connection.close()

    deadline = time.monotonic() + patience()
    with (
        TcpServer(end) as server,
        contextlib.closing(GrpcClient(server.address)) as client,
    ):
        while len(came) < ATTEMPTS:
            assert time.monotonic() < deadline
            with pytest.raises(TritonError):
                client.ready(timeout_seconds=1.0)
            time.sleep(0.01)
    gaps = [later - earlier for earlier, later in pairwise(came)]
    # A back-off that grew would be at five times the first by now.
    assert statistics.median(gaps[-5:]) < 2.5 * gaps[0]
