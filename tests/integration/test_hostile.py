"""Whoever can reach the port, and whoever answers as Triton, cannot end the watch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_triton import FakeModel, FakeTriton
from waiting import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

LAST = b"Host: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def fake() -> Generator[FakeTriton]:
    with FakeTriton([FakeModel("m")]) as server:
        yield server


@pytest.fixture
def sidecar(fake, settings, start_sidecar):
    return start_sidecar(settings(fake, multi_target={"allow": [fake.grpc]}))


def connected(sidecar) -> socket.socket:
    return socket.create_connection(("127.0.0.1", sidecar.port), timeout=patience(5))


def answers_to(sidecar, request: bytes) -> bytes:
    with connected(sidecar) as connection:
        connection.sendall(request)
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
        return received


# The HTTP surface.


SMUGGLED = (
    b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\nGET /-/healthy HTTP/1.1\r\n"
)
ODD = {
    "fields": (b"GET /probe?" + b"a=1&" * 300 + b" HTTP/1.1\r\n", 400),
    "utf-8": (b"GET /\xff HTTP/1.1\r\n", 400),
    "escapes": (b"GET /%ff%00%0a HTTP/1.1\r\n", 404),
    "nul": (b"GET / HTTP/1.1\r\nX: a\0b\r\n", 400),
    "trace": (b"TRACE / HTTP/1.1\r\n", 405),
    "options": (b"OPTIONS * HTTP/1.1\r\n", 404),
    "lengths": (
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n",
        400,
    ),
    "smuggled": (SMUGGLED, 400),
}


def test_an_odd_request_is_refused_once_and_leaves_no_trace_in_the_log(sidecar):
    for name, (head, status) in ODD.items():
        for _ in range(3):
            answer = answers_to(sidecar, head + LAST)
            assert answer.startswith(b"HTTP/1.1 %d" % status), name
            assert answer.count(b"HTTP/1.1") == 1, name
    assert "level=error" not in sidecar.log
    assert "level=warning" not in sidecar.log


# Signals.


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, None)]
)
def test_a_signal_while_it_starts_is_no_accident(
    fake, settings, tmp_path, number, code
):
    file = tmp_path / "tritonwatch.yaml"
    file.write_text(json.dumps(settings(fake)), "utf-8")
    # The moment at which the heavy imports begin, held for as long as it takes.
    (tmp_path / "structlog.py").write_text(
        "import pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'importing')!r}).touch()\n"
        "time.sleep(1)\n"
        "raise SystemExit(7)\n",
        "utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "exporter.cli", "serve", "--config", str(file)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    try:
        wait_until((tmp_path / "importing").exists)
        process.send_signal(number)
        assert process.wait(patience()) == (7 if code is None else code)
    finally:
        process.kill()
        process.wait()


def test_a_storm_of_reloads_leaves_nothing_behind_and_ends_at_once(
    fake, settings, start_sidecar
):
    with FakeTriton([FakeModel("other")]) as other:
        sidecar = start_sidecar(settings(fake))
        sidecar.wait(lambda p: p.value("triton_model_serving", model="m") == 1)
        files = Path(f"/proc/{sidecar.process.pid}/fd")
        before = len(list(files.iterdir()))
        for turn in range(40):
            sidecar.write(settings(fake if turn % 2 else other))
            sidecar.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        sidecar.wait(lambda p: p.label("triton_model_serving", "model") == {"m"})
        assert len(list(files.iterdir())) < before + 10
        for _ in range(200):
            sidecar.process.send_signal(signal.SIGHUP)
        sidecar.process.send_signal(signal.SIGTERM)
        code, seconds = sidecar.end()
    assert code == 0
    assert seconds < patience(10)
    assert "level=error" not in sidecar.log
