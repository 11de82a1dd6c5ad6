"""Connections that are used again: the server may close one as a request is on its way."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import urllib3.util.connection
from openai_server import DONE, OpenAiServer, Scripted, Write, delta
from tcp_peers import TcpServer

from exporter.errors import UnavailableError
from exporter.openai.openai_client import OpenAiClient
from exporter.triton import patience
from exporter.triton.event_stream import EVENTS
from exporter.triton.generate import infer_stream
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import (
    InferReply,
    InferRequest,
    ModelSpec,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CONNECT_SECONDS = 0.5


def requests_on(connection: socket.socket) -> Generator[None]:
    """Each request that comes on it, once its body is there."""
    with connection.makefile("rb") as stream:
        while stream.readline():
            size = 0
            while (line := stream.readline().lower()).strip():
                if line.startswith(b"content-length:"):
                    size = int(line.partition(b":")[2])
            stream.read(size)
            yield


class Closing:
    """Answers one request on each connection and ends it at the next one."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        """Requests that came on each connection."""

    def __call__(self, connection: socket.socket) -> None:
        number = len(self.requests)
        self.requests.append(0)
        for _ in requests_on(connection):
            self.requests[number] += 1
            if self.requests[number] > 1:
                connection.shutdown(socket.SHUT_RDWR)
                return
            connection.sendall(OK)


@contextlib.contextmanager
def client_of(serve: Callable[[socket.socket], None]) -> Generator[HttpClient]:
    with TcpServer(serve) as server:
        client = HttpClient(server.address)
        with contextlib.closing(client):
            yield client


def test_a_request_that_a_used_connection_did_not_answer_is_not_repeated() -> None:
    serve = Closing()
    with client_of(serve) as client:
        client.post("/x", b"{}", timeout_seconds=5)
        with pytest.raises(UnavailableError):
            client.post("/x", b"{}", timeout_seconds=5)
    assert serve.requests == [2]


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "MAX_IDLE_SECONDS", 0.01)
    serve = Closing()
    with client_of(serve) as client:
        for _ in range(3):
            client.post("/x", b"{}", timeout_seconds=5)
            time.sleep(0.02)
    assert serve.requests == [1, 1, 1]


@pytest.fixture
def slow_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    create = urllib3.util.connection.create_connection

    def later(*args: Any, **kwargs: Any) -> socket.socket:
        time.sleep(CONNECT_SECONDS)
        return create(*args, **kwargs)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", later)


def request(inputs: dict[str, Any]) -> InferRequest:
    return InferRequest("m", "", "tritonwatch-synthetic-x-1", inputs, {})


def answering(content_type: bytes, body: bytes) -> Callable[[socket.socket], None]:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"

    def serve(connection: socket.socket) -> None:
        for _ in requests_on(connection):
            connection.sendall(head % (content_type, len(body)) + body)

    return serve


def of_openai() -> InferReply:
    events = Scripted([Write(delta(content="Hello")), Write(DONE)])
    with OpenAiServer(lambda *_: events) as server:
        client = OpenAiClient(HttpClient(server.address), "chat", 8)
        with contextlib.closing(client):
            prompt = {"prompt": np.array([b"x"], object)}
            return client.infer_stream(request(prompt), timeout_seconds=10)


def of_inference() -> InferReply:
    with client_of(answering(b"application/json", b'{"outputs": []}')) as client:
        return client.infer(request({}), timeout_seconds=10)


def of_generate() -> InferReply:
    spec = ModelSpec("m", "1", (), (TensorSpec("y", "INT32", (1,)),), decoupled=True)
    with client_of(answering(EVENTS.encode(), b'data: {"y": 1}\n\n')) as client:
        return infer_stream(client, request({}), spec, timeout_seconds=10)


@pytest.mark.usefixtures("slow_connecting")
@pytest.mark.parametrize("answered", [of_openai, of_inference, of_generate])
def test_the_time_of_a_request_has_no_connecting_in_it(
    answered: Callable[[], InferReply],
) -> None:
    started = time.perf_counter()
    reply = answered()
    left = time.perf_counter() - started - CONNECT_SECONDS
    assert (reply.first_response_seconds or 0) <= reply.duration_seconds < left
