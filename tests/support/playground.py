"""A real Triton that a test may load, unload, kill and freeze, and its production."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import TYPE_CHECKING, Any

import numpy as np
from waiting import patience, wait_until

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton


class Playground:
    """A real Triton with the models of tests/data/models, under explicit control."""

    def __init__(self, triton: EmbeddedTriton) -> None:
        self.triton = triton
        self.grpc, self.http, self.metrics = triton.grpc, triton.http, triton.metrics

    def model(self, name: str, action: str) -> None:
        """Load or unload a model and wait until Triton is done with it."""
        self.begin(name, action)
        wanted = "READY" if action == "load" else None
        wait_until(lambda: self.states().get(name) == wanted, f"{name}: {action}")

    def begin(self, name: str, action: str) -> None:
        """The same without waiting."""
        self._post(f"/v2/repository/models/{name}/{action}")

    def states(self) -> dict[str, str | None]:
        """Each model's state; None where it is not loaded."""
        index = json.loads(self._post("/v2/repository/index"))
        return {
            entry["name"]: None
            if entry.get("state") in (None, "UNAVAILABLE")
            else entry["state"]
            for entry in index
        }

    def touch(self, name: str) -> None:
        """Make the model's file look changed, so that `load` really loads it anew."""
        os.utime(self.triton.repository / name / "1" / "model.py")

    def restore(self) -> None:
        """Running, not frozen, with both models."""
        self.triton.thaw()
        self.triton.start()
        for name in ("double", "sleepy"):
            if self.states().get(name) != "READY":
                self.model(name, "load")
        if not self._answers():
            self.triton.restart()

    def _answers(self) -> bool:
        sender = Traffic(self.grpc)
        try:
            sender.double()
            sender.sleepy(0)
        except TritonError:
            return False
        finally:
            sender.close()
        return True

    def _post(self, path: str) -> bytes:
        request = urllib.request.Request(f"http://{self.http}{path}", b"{}")
        with urllib.request.urlopen(request, timeout=patience(15)) as reply:
            return reply.read()


class Traffic:
    """Production as far as the sidecar can know: requests with ids of our own."""

    def __init__(self, grpc: str) -> None:
        self._client = GrpcClient(grpc)
        self.sent = 0

    def close(self) -> None:
        self._client.close()

    def double(self, count: int = 1, *, rows: int = 1) -> None:
        """Send requests of `rows` rows each to `double`, one after the other."""
        x = np.ones((rows, 8), np.float32)
        for _ in range(count):
            self._infer("double", {"x": x})

    def sleepy(self, delay_ms: int) -> None:
        """One request to `sleepy`."""
        self._infer("sleepy", {"x": np.ones(1, np.float32)}, delay_ms=delay_ms)

    def _infer(self, model: str, inputs: dict[str, Any], **parameters: int) -> None:
        self.sent += 1
        self._client.infer(
            InferRequest(
                model,
                "",
                f"production-{self.sent}",
                inputs,
                dict.fromkeys(inputs, "FP32"),
                parameters,
            ),
            timeout_seconds=10,
        )
