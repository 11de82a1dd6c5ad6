"""A client that shares nothing with the load engine: plain sockets, its own log and clock.

    python independent_client.py HOST:PORT MODEL RATE SECONDS LOG

Asks on schedule, each request over a connection of its own from a thread of its own,
and writes a line for each when all are over: Unix time when it was due, Unix time when
it ended, and 1 if the answer was the one that the first answer was.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from typing import Any

TIMEOUT_SECONDS = 1.0
_THREADS = 150


def ask(address: tuple[str, int], request: bytes) -> bytes | None:
    """The body of a 200; None for anything else within the timeout."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    received = b""
    try:
        with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
            connection.sendall(request)
            while True:
                connection.settimeout(max(deadline - time.monotonic(), 1e-3))
                part = connection.recv(65536)
                if not part:
                    break
                received += part
    except OSError:
        return None
    head, _, body = received.partition(b"\r\n\r\n")
    return body if head.startswith(b"HTTP/1.1 200") else None


def request_of(host: str, model: str) -> bytes:
    """64 zeros, as the digits models take them."""
    tensor = {
        "name": "pixels",
        "shape": [1, 64],
        "datatype": "FP32",
        "data": [0.0] * 64,
    }
    body = json.dumps({"inputs": [tensor]}).encode()
    return (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {host}\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def answer_of(body: bytes | None) -> Any:
    """The outputs of an answer; None where it is none."""
    try:
        return None if body is None else json.loads(body)["outputs"]
    except (ValueError, LookupError):
        return None


def main() -> None:
    """Ask, then write the log."""
    address, model, rate, seconds, log = sys.argv[1:]
    host, _, port = address.rpartition(":")
    where, request = (host, int(port)), request_of(address, model)
    right = answer_of(ask(where, request))
    count = int(float(rate) * float(seconds))
    start, offset = time.monotonic() + 0.2, time.time() - time.monotonic()
    rows: list[tuple[float, float, int]] = []
    places = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return
            due = start + place / float(rate)
            time.sleep(max(due - time.monotonic(), 0.0))
            found = answer_of(ask(where, request))
            ended = time.monotonic()
            well = found is not None and found == right
            rows.append((due + offset, ended + offset, int(well)))

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(log, "w", encoding="utf-8") as file:  # noqa: PTH123 - plain on purpose
        file.writelines(
            f"{due!r} {ended!r} {well}\n" for due, ended, well in sorted(rows)
        )


if __name__ == "__main__":
    main()
