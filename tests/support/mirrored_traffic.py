"""Clients of a proxy that mirrors what it brings to Triton, and the sidecar it goes to."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import statistics
import threading
import time

import numpy as np
import pytest
from waiting import patience

MODEL = "double"
CLIENTS = 4
_ROUNDS = 5


def json_request(value=1.0):
    tensor = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [value] * 8}
    return json.dumps({"id": "production", "inputs": [tensor]}).encode(), {
        "content-type": "application/json"
    }


def binary_request(rows):
    x = np.ones((rows, 8), np.float32)
    tensor = {
        "name": "x",
        "shape": list(x.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": x.nbytes},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    return head + x.tobytes(), {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(head)),
    }


class Client:
    """One connection that is kept, as clients of inference servers keep theirs."""

    def __init__(self, port):
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=patience(30)
        )

    def infer(self, body, headers, path=f"/v2/models/{MODEL}/infer"):
        """Seconds until the whole answer was there."""
        started = time.perf_counter()
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200
        return time.perf_counter() - started

    def close(self):
        self._connection.close()


def latencies(ports, requests):
    """Of so many requests by each of some clients, who take the ports in turns."""
    found = {port: [] for port in ports}
    failed = []

    def run():
        clients = {port: Client(port) for port in ports}
        try:
            for _ in range(requests):
                for port, client in clients.items():
                    found[port].append(client.infer(*json_request()))
        except (OSError, AssertionError, http.client.HTTPException) as error:
            failed.append(error)
        finally:
            for client in clients.values():
                client.close()

    threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    assert all(len(times) == CLIENTS * requests for times in found.values())
    return found


@contextlib.contextmanager
def spoiled_tap(state, ports, start):
    """What makes the taps on these ports bad when it is called.

    "frozen" and "dead" are states of the sidecar that `start` starts; "slow" is somebody
    in its place who takes connections and never answers.
    """
    with contextlib.ExitStack() as stack:
        if state == "slow":
            for port in ports:
                silent = socket.create_server(("127.0.0.1", port), backlog=4096)
                stack.enter_context(silent)
            yield lambda: None
            return
        sidecar = start()
        sidecar.wait(lambda page: page.value("triton_model_ready", model=MODEL) == 1)
        stack.callback(sidecar.process.send_signal, signal.SIGCONT)
        number = signal.SIGSTOP if state == "frozen" else signal.SIGKILL
        yield lambda: sidecar.process.send_signal(number)


def assert_requests_arrive(sidecar, port):
    """Send requests through a proxy: each is mirrored, read, and parsed."""
    client, sent = Client(port), 0

    def settled(page):
        return page.sum("tritonwatch_tap_requests_total", source="http") == sent

    def sampled(page):
        name = "tritonwatch_tap_samples_total"
        return page.sum(name, model=MODEL, source="http")

    def looked_at(page):
        # From when on drift watches the model is its own affair.
        nonlocal sent
        client.infer(*json_request())
        sent += 1
        return sampled(page) > 0

    sidecar.wait(looked_at, 30)
    read = "tritonwatch_tap_requests_total"
    before = sidecar.wait(settled).value(read, source="http", outcome="accepted")
    for _ in range(20):
        client.infer(*json_request())
        client.infer(*binary_request(8))
    client.infer(*json_request(), path=f"/v2/models/{MODEL}/versions/1/infer")
    client.close()
    sent += 41
    page = sidecar.wait(settled)
    assert page.value(read, source="http", outcome="accepted") == before + 41
    sidecar.wait(lambda page: sampled(page) == before + 41)
    for outcome in ("malformed", "too_large", "unsupported", "timeout", "overloaded"):
        assert page.sum(read, outcome=outcome) == 0


def assert_mirror_costs_nothing(mirrored, plain, spoil, longest_seconds):
    """Compare a proxy that mirrors with one that does not, in turns on one machine."""
    first = latencies([mirrored, plain], 20)
    spoil()
    limits = {}
    # What the mirror costs is there in every round, what other processes cost is not.
    for _ in range(_ROUNDS):
        found = latencies([mirrored, plain], 200)
        assert max(first[mirrored] + found[mirrored]) < longest_seconds
        middle = {port: statistics.median(times) for port, times in found.items()}
        tail = {port: np.quantile(times, 0.95) for port, times in found.items()}
        # A copy costs the proxy some work; a wait would cost a hundred times this.
        limits = {
            "median": (middle[mirrored], 3 * middle[plain] + 0.005),
            "95 %": (tail[mirrored], 3 * tail[plain] + 0.01),
        }
        if all(taken < limit for taken, limit in limits.values()):
            return
    pytest.fail(f"in each of {_ROUNDS} rounds; in the last one {limits}")


def sidecar_config(settings, playground, tap_port, *, grpc_port):
    """Everything that a tap takes is parsed, since drift learns the model."""
    tap = {"address": "127.0.0.1", "port": tap_port, "grpc_port": grpc_port}
    return settings(
        playground,
        listen={
            "address": "127.0.0.1",
            "port": 0,
            "tap": tap,
        },
        drift=[{"models": MODEL, "learn": {"rows": 500, "seconds": 1}}],
        collectors=[
            {"kind": "server", "interval_seconds": 0.5},
            {
                "kind": "mirror",
                "grpc": True,
                "interval_seconds": 0.2,
                "samples_per_second": 1e5,
                "max_samples_per_second": 1e5,
            },
        ],
        probes=[],
    )
