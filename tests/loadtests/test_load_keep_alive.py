"""Connections over HTTP that the server closes between requests, or within one."""

from __future__ import annotations

import errno
import json
import threading
import time
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pytest
from tcp_peers import TcpServer

from exporter.triton.protocol_types import ModelSpec, TensorSpec
from loadtests.engine import Options, run_closed, run_open
from loadtests.engine.http_sender import HttpSender
from loadtests.plan import Body, Entry, Mix
from loadtests.result import Outcome
from loadtests.target import Target

if TYPE_CHECKING:
    import socket

ANSWER = json.dumps(
    {"outputs": [{"name": "o", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
).encode()
SPEC = ModelSpec("m", "1", (), (TensorSpec("o", "FP32", (1,)),))
CONTENT = b'{"inputs":[]}'
MIX = Mix((Entry("m", SPEC, (Body(CONTENT, len(CONTENT)),)),))


class Closing(TcpServer):
    """Answers some requests on each connection, then closes it without a word.

    Args:
        answers: on the first connection, and on all others.
        reads_one_more: closes once it has read the next request, not after the answer.
        part: of an answer, sent before it closes.
        works_seconds: on the request that it read and does not answer.
    """

    def __init__(
        self,
        *answers: int,
        reads_one_more: bool = False,
        part: bytes = b"",
        works_seconds: float = 0.0,
    ):
        self.answers, self.reads_one_more, self.part = answers, reads_one_more, part
        self.works_seconds = works_seconds
        self.connections = self.received = 0
        self.lock = threading.Lock()
        super().__init__(self._answer)
        self.target = Target("http", self.address)

    def _answer(self, connection: socket.socket) -> None:
        with self.lock:
            self.connections += 1
            left = self.answers[min(self.connections, len(self.answers)) - 1]
        with connection, connection.makefile("rb") as requests:
            while (left or self.reads_one_more) and self._read(requests):
                if not left:
                    time.sleep(self.works_seconds)
                    connection.sendall(self.part)
                    return
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
                )
                left -= 1

    def _read(self, requests: BinaryIO) -> bool:
        while (line := requests.readline()) not in (b"\r\n", b""):
            pass
        if not line or not requests.read(len(CONTENT)):
            return False
        with self.lock:
            self.received += 1
        return True


@pytest.mark.parametrize("reads_one_more", [False, True])
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_a_connection_that_the_server_closes_costs_no_request(
    mode, reads_one_more
) -> None:
    options = Options(timeout_seconds=20.0)
    with Closing(7, reads_one_more=reads_one_more) as server:
        if mode == "open":
            result = run_open(server.target, MIX, np.arange(200) / 200, options=options)
        else:
            result = run_closed(
                server.target,
                MIX,
                concurrency=2,
                duration_seconds=30.0,
                requests=200,
                options=options,
            )
    assert result.requests.count(Outcome.OK) == 200, result.errors
    assert result.unanswered.count == 0
    assert server.connections > 20
    if reads_one_more:
        assert server.received > 200
    else:
        assert server.received == 200


def alone(server: Closing, count: int):
    return run_closed(
        server.target,
        MIX,
        concurrency=1,
        duration_seconds=30.0,
        requests=count,
        options=Options(timeout_seconds=20.0),
    )


def test_a_request_is_sent_again_once_and_its_latency_counts_from_the_first() -> None:
    with Closing(1, 0, 9, reads_one_more=True) as server:
        result = alone(server, 3)
    # The second was lost on both connections, and the third has a new one.
    outcomes = [Outcome.OK, Outcome.ERROR, Outcome.OK]
    assert result.requests.outcome.tolist() == outcomes, result.errors
    assert server.received == 4
    assert "connection lost" in next(iter(result.errors))


@pytest.mark.parametrize(
    "given",
    [{"part": b"HTTP/1.1 200 OK\r\n"}, {"works_seconds": 0.3}],
    ids=["partly answered", "worked on"],
)
def test_a_request_that_the_server_has_begun_is_not_sent_again(given) -> None:
    with Closing(1, 9, reads_one_more=True, **given) as server:
        result = alone(server, 3)
    outcomes = [Outcome.OK, Outcome.ERROR, Outcome.OK]
    assert result.requests.outcome.tolist() == outcomes, result.errors
    assert server.received == 3


@pytest.mark.parametrize(
    ("error", "is_own"),
    [
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), True),
        (OSError("Multiple exceptions: [Errno 111] Refused, [Errno 99] None"), True),
        (OSError(errno.ECONNREFUSED, "Connection refused"), False),
        (OSError("Multiple exceptions: [Errno 111] Refused, [Errno 999] ?"), False),
    ],
)
def test_a_sender_without_descriptors_or_ports_does_not_blame_the_server(
    monkeypatch, error, is_own
) -> None:
    connect = HttpSender._connect
    opened: list[bool] = []

    async def connect_once(sender):
        opened.append(True)
        if len(opened) > 1:
            raise error
        return await connect(sender)

    monkeypatch.setattr(HttpSender, "_connect", connect_once)
    with Closing(1) as server:
        result = run_open(server.target, MIX, np.arange(10) / 50)
    assert result.requests.count(Outcome.ERROR) == 9
    told = "the sender was the bottleneck: 9 of 10 requests" in str(result.verdict)
    assert told is is_own
