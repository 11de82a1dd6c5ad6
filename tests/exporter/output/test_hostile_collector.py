"""An OTLP collector that misbehaves costs its own counter and nothing else."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from bombs import gzip_bomb
from fake_triton import FakeTriton

from exporter.catalogue import UP
from exporter.output.otlp import OtlpExporter
from exporter.output.push import OtlpSettings
from exporter.samples import Sample
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from collections.abc import Generator

TIMEOUT_SECONDS = 0.5


@contextlib.contextmanager
def collector(first: bytes, more: bytes, every_seconds: float) -> Generator[int]:
    """A port that answers every request with `first`, then `more` over and over."""
    end = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(first)
            while more and not end.wait(every_seconds):
                connection.sendall(more)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        end.set()
        listener.shutdown(socket.SHUT_RDWR)


def pushed(port: int) -> bool:
    settings = OtlpSettings(
        endpoint=f"http://127.0.0.1:{port}", timeout_seconds=TIMEOUT_SECONDS
    )
    exporter = OtlpExporter(settings, "target", start_ns=0)
    try:
        return exporter.send_metrics([Sample(UP, 1)], 1)
    finally:
        exporter.close()


def test_an_answer_that_drips_is_given_up_in_time():
    with collector(b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.02) as port:
        started = time.monotonic()
        assert not pushed(port)
    assert time.monotonic() - started < 6 * TIMEOUT_SECONDS


@pytest.mark.parametrize("status", [b"400 Bad Request", b"200 OK"])
def test_an_answer_without_end_is_not_read(status):
    with collector(b"HTTP/1.1 " + status + b"\r\n\r\n", b"a" * 65536, 0) as port:
        tracemalloc.start()
        try:
            assert pushed(port) is status.startswith(b"200")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 << 20


def test_an_answer_that_inflates_is_not_inflated():
    bomb = gzip_bomb(64)
    head = b"HTTP/1.1 400 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    with collector(head % len(bomb) + bomb, b"", 0) as port:
        assert not pushed(port)


def test_a_redirect_is_not_followed_and_no_success():
    head = (
        b"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:%d/\r\n\r\n"
    )
    with (
        collector(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", 0) as other,
        collector(head % other, b"", 0) as port,
    ):
        assert not pushed(port)
        assert pushed(other)


def test_the_environments_proxy_is_not_what_is_asked(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with collector(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", 0) as port:
        assert pushed(port)
    with FakeTriton() as fake:
        client = GrpcClient(fake.grpc)
        try:
            assert client.live(timeout_seconds=5)
        finally:
            client.close()
