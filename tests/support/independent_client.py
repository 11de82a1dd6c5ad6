"""A client that shares nothing with the load engine: plain sockets, its own log and clock.

    python independent_client.py HOST:PORT MODEL RATE LOG

Asks on schedule until its standard input ends, each request over a connection of its own from a thread of its own,
and writes a line for each when all are over: the Unix times when it was due, when it was
sent and when it ended, and 1 if the answer was the same as the first answer.
"""

from __future__ import annotations

import itertools
import json
import math
import socket
import sys
import threading
import time

TIMEOUT_SECONDS = 10.0
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


def answer_of(body: bytes | None) -> list[float] | None:
    """The numbers of an answer's only output; None where it is none."""
    try:
        return None if body is None else json.loads(body)["outputs"][0]["data"]
    except (ValueError, LookupError):
        return None


def alike(found: list[float] | None, right: list[float] | None) -> bool:
    """Whether two answers are equal but for the last digits, which depend on the batch."""
    if found is None or right is None or len(found) != len(right):
        return False
    return all(
        math.isclose(*pair, abs_tol=1e-5) for pair in zip(found, right, strict=True)
    )


def main() -> None:
    """Ask, then write the log."""
    address, model, rate, log = sys.argv[1:]
    host, _, port = address.rpartition(":")
    where, request = (host, int(port)), request_of(address, model)
    right = answer_of(ask(where, request))
    start, offset = time.monotonic() + 0.2, time.time() - time.monotonic()
    rows: list[tuple[float, float, float, int]] = []
    places = itertools.count()
    lock, over = threading.Lock(), threading.Event()

    def work() -> None:
        while not over.is_set():
            with lock:
                place = next(places)
            due = start + place / float(rate)
            time.sleep(max(due - time.monotonic(), 0.0))
            sent = time.monotonic()
            found = answer_of(ask(where, request))
            ended = time.monotonic()
            rows.append(
                (
                    due + offset,
                    sent + offset,
                    ended + offset,
                    int(alike(found, right)),
                )
            )

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    with open(log, "w", encoding="utf-8") as file:  # noqa: PTH123 - plain on purpose
        file.writelines(" ".join(map(repr, row)) + "\n" for row in sorted(rows))


if __name__ == "__main__":
    main()
