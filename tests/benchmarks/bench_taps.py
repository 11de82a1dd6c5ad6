"""The taps: what a mirrored request costs when it is passed over, and when it is read."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

_TAP = Path(__file__).with_name("tap_process.py")
MODEL = "bench"
CONNECTIONS = 16
REQUEST_BYTES = 1024
ROUNDS = 15
_WINDOW_SECONDS = 1.0
_WARM_SECONDS = 1.0


def _json_body() -> bytes:
    """A request of one FP32 tensor whose JSON is as near to 1 kB as its values allow."""
    rng = np.random.default_rng(figures.SEED)
    values: list[float] = []
    while True:
        tensor = {
            "name": "x",
            "shape": [1, len(values) + 1],
            "datatype": "FP32",
            "data": [*values, round(float(rng.normal()), 4)],
        }
        body = json.dumps({"id": "production-1", "inputs": [tensor]}).encode()
        if len(body) > REQUEST_BYTES:
            return body
        values = tensor["data"]


def _binary_body() -> tuple[bytes, int]:
    """The same by the binary tensor extension, and the length of its JSON."""
    count = (REQUEST_BYTES - 140) // 4
    tensor = {
        "name": "x",
        "shape": [1, count],
        "datatype": "FP32",
        "parameters": {"binary_data_size": 4 * count},
    }
    head = json.dumps({"id": "production-1", "inputs": [tensor]}).encode()
    data = np.random.default_rng(figures.SEED).normal(size=count).astype("<f4")
    return head + data.tobytes(), len(head)


def _request(body: bytes, *headers: str) -> bytes:
    lines = (
        f"POST /v2/models/{MODEL}/infer HTTP/1.1",
        "host: tap",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "x-request-id: 2f1d1a0c-4f2e-4f4e-9a53-0d7c7e5a0c11",
        "user-agent: mirror/1",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode() + body


class _Tap:
    """tap_process.py, and how much it has run."""

    def __init__(self, samples_per_second: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_TAP), str(samples_per_second)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                host, _, port = json.loads(line)["address"].rpartition(":")
                self.address = (host, int(port))
                break

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def counted(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def cpu_seconds(self) -> float:
        """What its threads have run, to the nanosecond."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return (
            sum(int((t / "schedstat").read_text("ascii").split()[0]) for t in tasks)
            / 1e9
        )

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


class _Mirror:
    """A proxy's side: connections kept, on each one request at a time."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self._request = request
        self._sockets = [socket.create_connection(address) for _ in range(CONNECTIONS)]
        self._ready = select.epoll()
        self._by_number = {s.fileno(): s for s in self._sockets}
        for number in self._by_number:
            self._ready.register(number, select.EPOLLIN)

    def close(self) -> None:
        self._ready.close()
        for connection in self._sockets:
            connection.close()

    def send(self, seconds: float) -> int:
        """How many requests were answered 200; any other answer is an error."""
        until = time.perf_counter() + seconds
        answered, waiting = 0, len(self._sockets)
        for connection in self._sockets:
            connection.sendall(self._request)
        while waiting:
            for number, _ in self._ready.poll(5.0):
                reply = self._by_number[number].recv(4096)
                if not reply.startswith(b"HTTP/1.1 200 "):
                    raise RuntimeError(f"the tap answers {reply[:200]!r}")
                answered += 1
                if time.perf_counter() < until:
                    self._by_number[number].sendall(self._request)
                else:
                    waiting -= 1
        return answered


def _costs(tap: _Tap, request: bytes, rounds: int) -> tuple[list[float], list[float]]:
    """CPU microseconds a request, and requests a second on the clock, by round."""
    with contextlib.closing(_Mirror(tap.address, request)) as mirror:
        mirror.send(_WARM_SECONDS)
        costs, rates = [], []
        for _ in range(rounds):
            before, started = tap.cpu_seconds(), time.perf_counter()
            answered = mirror.send(_WINDOW_SECONDS)
            elapsed = time.perf_counter() - started
            costs.append((tap.cpu_seconds() - before) / answered * 1e6)
            rates.append(answered / elapsed)
    return costs, rates


def _figure(
    name: str, found: tuple[list[float], list[float]], per_second: float, what: str
) -> Figure:
    costs, rates = found
    return figures.at_most(
        name,
        unit="microseconds",
        goal=1e6 / per_second,
        n=len(costs),
        requests_per_core_second=1e6 / figures.median(costs)["value"],
        requests_per_second=figures.median(rates)["value"],
        measured=f"CPU time of the whole tap process for each mirrored request of 1 kB"
        f" over {CONNECTIONS} kept connections, {what}; the goal is {per_second:g}"
        " requests a second of one core",
        versions=figures.versions("uvicorn", "httptools", "numpy"),
        **figures.median(costs),
    )


def accepted(*, quick: bool = False) -> Figure:
    """Mirrored requests of which 20 a second are read, the rest sampled out."""
    with contextlib.closing(_Tap(20.0)) as tap:
        found = _costs(tap, _request(_json_body()), 3 if quick else ROUNDS)
        counted = tap.counted()
    if not 0 < counted["accepted"] < counted["sampled_out"] / 10:
        raise RuntimeError(f"the tap did not sample: {counted}")
    return _figure(
        "tap_accepted",
        found,
        15_000,
        "20 a second of them read, the others sampled out",
    )


def parsed(*, quick: bool = False) -> Iterator[Figure]:
    """Mirrored requests all of which are read and handed to a reader."""
    binary, json_bytes = _binary_body()
    bodies = {
        "json": _request(_json_body()),
        "binary": _request(binary, f"inference-header-content-length: {json_bytes}"),
    }
    for name, request in bodies.items():
        with contextlib.closing(_Tap(100_000.0)) as tap:
            found = _costs(tap, request, 3 if quick else ROUNDS)
            counted = tap.counted()
        if not counted["values"] or set(counted) != {"accepted", "values"}:
            raise RuntimeError(f"the tap did not read all: {counted}")
        what = f"each read as {name} and handed to a reader"
        yield _figure(f"tap_parsed_{name}", found, 1_500, what)


def memory(*, quick: bool = False) -> Figure:
    """How the resident memory grows over the second half of a run, all being read."""
    rounds = 4 if quick else 40
    with contextlib.closing(_Tap(100_000.0)) as tap:
        request = _request(_json_body())
        with contextlib.closing(_Mirror(tap.address, request)) as mirror:
            sent = sum(mirror.send(_WINDOW_SECONDS) for _ in range(rounds // 2))
            half = tap.resident_bytes()
            sent += sum(mirror.send(_WINDOW_SECONDS) for _ in range(rounds // 2))
            grown = tap.resident_bytes() - half
    return figures.at_most(
        "tap_memory_growth",
        grown / 2**20,
        "mebibytes",
        1.0,
        n=sent,
        measured="rise of the resident memory over the second half of a run in which"
        " every mirrored request is read",
    )
