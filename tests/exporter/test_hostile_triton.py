"""What answers in place of Triton cannot hold a thread, take the memory or end a loop."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from exporter import errors
from exporter.triton.http import HttpClient, _decode_reply

if TYPE_CHECKING:
    from collections.abc import Generator

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE_SECONDS = 0.3


@contextlib.contextmanager
def answering(first: bytes, more: bytes, every_seconds: float) -> Generator[str]:
    """A server that answers with `first`, then `more` over and over."""
    end = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(first)
            while not end.wait(every_seconds):
                connection.sendall(more)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        end.set()
        listener.shutdown(socket.SHUT_RDWR)


def asked(address: str) -> bytes:
    client = HttpClient(address)
    try:
        return client.get("/metrics", timeout_seconds=PATIENCE_SECONDS)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("first", "more", "every_seconds"),
    [
        (b"", b"H", 0.02),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.02),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"a", 0.02),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0),
        (CHUNKED, b"1\r\na\r\n", 0.02),
        (CHUNKED + b"0\r\n", b"X: y\r\n", 0),
    ],
    ids=["status", "header", "body", "continue", "chunks", "trailers"],
)
def test_an_answer_that_does_not_end_is_given_up_in_time(first, more, every_seconds):
    started = time.monotonic()
    with (
        answering(first, more, every_seconds) as address,
        pytest.raises(errors.DeadlineError),
    ):
        asked(address)
    assert time.monotonic() - started < 10 * PATIENCE_SECONDS


def test_an_answer_that_inflates_without_end_is_given_up():
    bomb = gzip.compress(gzip.compress(bytes(256 << 20), 1))
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: %d\r\n\r\n"
    )
    with (
        answering(head % len(bomb) + bomb, b"", 1) as address,
        pytest.raises((errors.ProtocolError, errors.DeadlineError)),
    ):
        asked(address)


OUTPUT = (
    b'{"outputs":[{"name":"a","datatype":"FP32","shape":[%b],'
    b'"parameters":{"binary_data_size":%b}}]}'
)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        OUTPUT % (b"1e999", b"0"),
        OUTPUT % (b"1", b"1e999"),
        OUTPUT % (b"1", b"-4"),
        b'{"outputs":null}',
        b"[]",
        b'"\xff"',
    ],
)
def test_an_answer_of_nonsense_is_a_protocol_error(body):
    with pytest.raises(errors.ProtocolError):
        _decode_reply({}, body)
