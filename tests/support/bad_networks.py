"""What a test of a bad network asks, and a network of its own to make bad."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tcp_peers import connect, receive

if TYPE_CHECKING:
    from collections.abc import Callable

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of unshare(2)."""
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


def echoed(address: str) -> float:
    """Seconds until 200 kB came back, sent in small writes."""
    started = time.perf_counter()
    with connect(address) as connection:
        for _ in range(100):
            connection.sendall(bytes(2000))
            assert len(receive(connection, 2000)) == 2000
    return time.perf_counter() - started


def tables() -> set[str]:
    """Of nftables, by name."""
    listed = subprocess.run(
        ["nft", "-j", "list", "tables"], capture_output=True, check=True
    )
    found = json.loads(listed.stdout)["nftables"]
    return {entry["table"]["name"] for entry in found if "table" in entry}


def in_own_network(act: Callable[[], None]) -> None:
    """Run in a thread with a loopback of its own, which goes with it."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            assert ctypes.CDLL(None).unshare(_NEW_NETWORK) == 0
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            act()
        except BaseException as error:  # noqa: BLE001 - raised again below
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
