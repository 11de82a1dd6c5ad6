"""Gentle traffic for the demo: real held-out rows, at a steady pace."""

from __future__ import annotations

import math
import threading
import time
from itertools import cycle
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporter.triton.model import Array

_PER_SECOND: Final = 20.0
_TIMEOUT_SECONDS: Final = 2.0
# One in twenty goes to the slow model, as in a mix where it would not dominate.
_MIX: Final = ("digits_fp32", "digits_int8", "diabetes") * 6 + ("stream", "slow")


class Traffic:
    """A thread that asks the demo models in turn, one request at a time.

    Each request goes to `mirror` as well. From `moves_after_seconds` on the patients
    are those of 60 years and older, whom the model was never trained on.
    """

    def __init__(
        self,
        grpc: str,
        models: Path,
        *,
        mirror: Callable[[InferRequest], None] = lambda _: None,
        moves_after_seconds: float = math.inf,
        seed: int = 0,
    ) -> None:
        self._client = GrpcClient(grpc)
        self._mirror = mirror
        self._moves_after_seconds = moves_after_seconds
        self._moves_at = math.inf
        self._rng = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, name="traffic", daemon=True)
        self._digits = _rows(models / "digits_fp32" / "data" / "held_out.npz")
        self._patients = _rows(models / "diabetes" / "data" / "held_out.npz")
        self._older = _rows(models / "diabetes" / "data" / "drift.npz")

    def __enter__(self) -> Self:
        """Start sending."""
        self._moves_at = time.monotonic() + self._moves_after_seconds
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sending and wait for the last answer."""
        self._stop.set()
        self._thread.join(2 * _TIMEOUT_SECONDS)
        self._client.close()

    def _send(self) -> None:
        due = time.monotonic()
        for number, model in enumerate(cycle(_MIX)):
            due += 1 / _PER_SECOND
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            send: Callable[..., object] = (
                self._client.infer_stream if model == "stream" else self._client.infer
            )
            request = self._request(model, number)
            self._mirror(request)
            try:
                send(request, timeout_seconds=_TIMEOUT_SECONDS)
            except TritonError:
                # The sidecar is what tells of failures; the traffic goes on.
                continue

    def _request(self, model: str, number: int) -> InferRequest:
        inputs, datatypes = self._inputs(model)
        return InferRequest(model, "", f"demo-{number}", inputs, datatypes)

    def _inputs(self, model: str) -> tuple[dict[str, Array], dict[str, str]]:
        if model in {"slow", "stream"}:
            name = "input" if model == "slow" else "values"
            return {name: self._rng.random(8, dtype=np.float32)}, {name: "FP32"}
        if model == "diabetes":
            moved = time.monotonic() >= self._moves_at
            row = self._row(self._older if moved else self._patients)
            # Text goes as bytes objects, one element each.
            inputs = {
                name: value.astype(object) if value.dtype.kind == "S" else value
                for name, value in row.items()
            }
            types = {
                n: "BYTES" if v.dtype == object else "FP32" for n, v in inputs.items()
            }
            return {name: v.reshape(1, 1) for name, v in inputs.items()}, types
        pixels = self._row(self._digits)["pixels"].astype(np.float32)
        return {"pixels": pixels.reshape(1, -1)}, {"pixels": "FP32"}

    def _row(self, rows: dict[str, Array]) -> dict[str, Array]:
        place = self._rng.integers(len(next(iter(rows.values()))))
        return {name: column[place : place + 1] for name, column in rows.items()}


def _rows(path: Path) -> dict[str, Array]:
    """The columns of a held-out set, without its labels."""
    with np.load(path) as data:
        return {name: data[name] for name in data.files if name != "label"}
