"""What a test of a bad network asks."""

from __future__ import annotations

import contextlib
import http.client
import json
import time

_BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1.0] * 8}]}
)


def http_to(address: str, *, timeout: float = 20.0) -> http.client.HTTPConnection:
    """A connection to a server's HTTP port."""
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=timeout)


def infer(connection: http.client.HTTPConnection, *, padding: int = 0) -> float:
    """Seconds of one inference, answer checked."""
    started = time.perf_counter()
    connection.request("POST", "/v2/models/double/infer", _BODY + " " * padding)
    answer = connection.getresponse()
    assert json.load(answer)["outputs"][0]["data"] == [2.0] * 8
    return time.perf_counter() - started


def ask_model(address: str, *, padding: int = 0, timeout: float = 20.0) -> float:
    """Seconds of one on a connection of its own, and of that."""
    started = time.perf_counter()
    with contextlib.closing(http_to(address, timeout=timeout)) as connection:
        infer(connection, padding=padding)
    return time.perf_counter() - started
