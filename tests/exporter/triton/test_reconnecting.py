"""How soon a client tries again to reach a server that was away."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from waiting import patience

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from collections.abc import Generator

ATTEMPTS = 10


@pytest.fixture
def attempts() -> Generator[tuple[str, list[float]]]:
    """An address where every connection is ended at once, and when each came."""
    came: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end_each() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    came.append(time.monotonic())
                    connection.close()

        thread = threading.Thread(target=end_each)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", came
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_a_server_that_stays_away_is_tried_no_less_often(
    attempts: tuple[str, list[float]],
) -> None:
    address, came = attempts
    deadline = time.monotonic() + patience()
    with contextlib.closing(GrpcClient(address)) as client:
        while len(came) < ATTEMPTS:
            assert time.monotonic() < deadline
            with pytest.raises(TritonError):
                client.ready(timeout_seconds=1.0)
            time.sleep(0.01)
    gaps = [later - earlier for earlier, later in pairwise(came)]
    # A back-off that grew would be at five times the first by now.
    assert statistics.median(gaps[-5:]) < 2.5 * gaps[0]
