"""Clients of a proxy that mirrors what it brings to Triton, and the sidecar it goes to."""

from __future__ import annotations

import http.client
import json
import threading
import time

import numpy as np

MODEL = "double"
CLIENTS = 4


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
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

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


def sidecar_config(settings, playground, tap_port, *, grpc_port=None):
    """Everything that a tap takes is parsed, since drift learns the model."""
    tap = {"address": "127.0.0.1", "port": tap_port}
    return settings(
        playground,
        listen={
            "address": "127.0.0.1",
            "port": 0,
            "tap": tap if grpc_port is None else {**tap, "grpc_port": grpc_port},
        },
        drift=[{"models": MODEL, "learn": {"rows": 500, "seconds": 1}}],
        collectors=[
            {"kind": "server", "interval_seconds": 0.5},
            {
                "kind": "mirror",
                "grpc": grpc_port is not None,
                "interval_seconds": 0.2,
                "samples_per_second": 1e5,
                "max_samples_per_second": 1e5,
            },
        ],
        probes=[],
    )
