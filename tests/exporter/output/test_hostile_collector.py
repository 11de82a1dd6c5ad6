"""An OTLP collector that misbehaves costs its own counter and nothing else."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from bombs import gzip_bomb
from fake_triton import FakeTriton
from tcp_peers import endless
from waiting import patience

from exporter.catalogue import UP
from exporter.output.otlp import OtlpExporter
from exporter.output.otlp_settings import OtlpSettings
from exporter.samples import Sample
from exporter.triton.grpc import GrpcClient

TIMEOUT_SECONDS = 0.5


def pushed(address: str) -> bool:
    settings = OtlpSettings(
        endpoint=f"http://{address}", timeout_seconds=TIMEOUT_SECONDS
    )
    exporter = OtlpExporter(settings, "target", start_ns=0)
    try:
        return exporter.send_metrics([Sample(UP, 1)], 1)
    finally:
        exporter.close()


def test_an_answer_that_drips_is_given_up_in_time():
    with endless(b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.02) as server:
        started = time.monotonic()
        assert not pushed(server.address)
    assert time.monotonic() - started < patience(6 * TIMEOUT_SECONDS)


@pytest.mark.parametrize("status", [b"400 Bad Request", b"200 OK"])
def test_an_answer_without_end_is_not_read(status):
    with endless(b"HTTP/1.1 " + status + b"\r\n\r\n", b"a" * 65536, 0) as server:
        tracemalloc.start()
        try:
            assert pushed(server.address) is status.startswith(b"200")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 << 20


def test_an_answer_that_inflates_is_not_inflated():
    bomb = gzip_bomb(64)
    head = b"HTTP/1.1 400 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    with endless(head % len(bomb) + bomb) as server:
        assert not pushed(server.address)


def test_a_redirect_is_not_followed_and_no_success():
    head = (
        b"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:%d/\r\n\r\n"
    )
    with (
        endless(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as other,
        endless(head % int(other.address.rpartition(":")[2])) as server,
    ):
        assert not pushed(server.address)
        assert pushed(other.address)


def test_the_environments_proxy_is_not_what_is_asked(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with endless(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as server:
        assert pushed(server.address)
    with FakeTriton() as fake:
        client = GrpcClient(fake.grpc)
        try:
            assert client.live(timeout_seconds=5)
        finally:
            client.close()
