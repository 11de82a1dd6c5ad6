"""Gentle traffic for the demo, real held-out rows at a steady pace, and its mirror."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest
from exporter.triton.tensors import decode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporter.triton.protocol_types import Array, InferReply


_WAITING: Final = 100
_MIRROR_TIMEOUT_SECONDS: Final = 0.5


class Mirror:
    """Sends copies to the tap: requests byte for byte, answers as KServe's logger does."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._client = HttpClient(self._address)
        self._loggers: dict[str, HttpClient] = {}
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(
            target=self._pass_on, name="mirror", daemon=True
        )

    def __enter__(self) -> Self:
        """Start passing on."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; copies that still wait are let go."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)
        self._thread.join(2 * _MIRROR_TIMEOUT_SECONDS)
        for client in (self._client, *self._loggers.values()):
            client.close()

    def sent(self, request: InferRequest) -> None:
        """Pass a request on, unless too many wait already."""
        self._later(
            lambda: self._client.infer(request, timeout_seconds=_MIRROR_TIMEOUT_SECONDS)
        )

    def answered(self, model: str, reply: InferReply) -> None:
        """Pass an answer on, unless too many wait already."""
        self._later(lambda: self._log(model, reply))

    def _later(self, send: Callable[[], object]) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(send)

    def _pass_on(self) -> None:
        while (send := self._waiting.get()) is not None:
            # A tap answers without an inference; a mirror ignores the answer.
            with contextlib.suppress(TritonError):
                send()

    def _log(self, model: str, reply: InferReply) -> None:
        outputs: list[dict[str, Any]] = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "data": decode(tensor).ravel().tolist(),
            }
            for tensor in reply.outputs
        ]
        body = json.dumps({"model_name": model, "outputs": outputs}).encode()
        self._logger(model).post("/", body, timeout_seconds=_MIRROR_TIMEOUT_SECONDS)

    def _logger(self, model: str) -> HttpClient:
        if model not in self._loggers:
            headers = {
                "ce-type": "org.kubeflow.serving.inference.response",
                "ce-id": "demo",
                "ce-source": "demo",
                "ce-specversion": "1.0",
                "ce-inferenceservicename": model,
            }
            self._loggers[model] = HttpClient(self._address, headers=headers)
        return self._loggers[model]


_TIMEOUT_SECONDS: Final = 2.0
# Behind by more than this the missed requests are left out: clients come at a steady
# pace, not in a burst once a server answers again.
_BEHIND_SECONDS: Final = 0.5
MODELS: Final = ("digits_fp32", "digits_int8", "diabetes", "llm", "slow")
RATE: Final = 15.0
"""Requests a second to each model: its p99 needs 368 traces, which come within half a minute.

More would give its interval sooner, but each trace may end a Triton 2.51.
"""
_WORDS: Final = [
    "why",
    "when",
    "where",
    "is",
    "the",
    "queue",
    "model",
    "answer",
    "slow",
    "wrong",
    "late",
    "power",
]
_SYSTEM: Final = (
    "You answer the questions of operators of inference servers in one short sentence"
    " and without names."
)
"""Beginning of all prompts, 16 words: a block of the model's prefix cache."""
_LOGGED: Final = ("digits_fp32", "digits_int8", "diabetes")


class Traffic:
    """One client for each demo model, one request at a time.

    Each request goes to `mirror` as well, and so do answers of the classifiers.
    """

    def __init__(self, grpc: str, models: Path, mirror: Mirror) -> None:
        self._client = GrpcClient(grpc)
        self._mirror = mirror
        self._moved = threading.Event()
        self._canary: tuple[str, str, float] = ("", "", 0.0)
        self._rngs = {
            model: np.random.default_rng(number) for number, model in enumerate(MODELS)
        }
        self._stop = threading.Event()
        self._threads = [self._thread(self._send, model) for model in MODELS]
        self._digits = _rows(models / "digits_fp32" / "data" / "held_out.npz")
        self._patients = _rows(models / "diabetes" / "data" / "held_out.npz")
        self._older = _rows(models / "diabetes" / "data" / "drift.npz")

    def __enter__(self) -> Self:
        """Start sending."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sending and wait for the last answers."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_SECONDS)
        self._client.close()

    def grow_older(self) -> None:
        """Send patients of 60 years and older from now on, unlike the training data."""
        self._moved.set()

    def canary(self, model: str, version: str, share: float) -> None:
        """Send a `share` of the requests to `model` to `version` from now on."""
        self._canary = (model, version, share)

    def crowd(self, *, clients: int, delay_ms: int, seconds: float) -> None:
        """More clients of `slow`, each with its next request as soon as one is answered.

        A request of theirs occupies the model for `delay_ms`.
        """
        ends = time.monotonic() + seconds
        for number in range(clients):
            thread = self._thread(self._hurry, delay_ms, ends, number)
            self._threads.append(thread)
            thread.start()

    def _thread(
        self, target: Callable[..., None], *arguments: object
    ) -> threading.Thread:
        return threading.Thread(
            target=target, args=arguments, name="traffic", daemon=True
        )

    def _hurry(self, delay_ms: int, ends: float, number: int) -> None:
        inputs = {"input": np.zeros(8, np.float32)}
        while time.monotonic() < ends and not self._stop.is_set():
            request = InferRequest(
                *("slow", "", f"crowd-{number}", inputs, {"input": "FP32"}),
                parameters={"delay_ms": delay_ms},
            )
            try:
                self._client.infer(request, timeout_seconds=2 * _TIMEOUT_SECONDS)
            except TritonError:
                # A server that does not answer is not asked in a tight loop.
                self._stop.wait(0.1)

    def _send(self, model: str) -> None:
        begun, number = time.monotonic(), 0
        while True:
            number += 1
            # At a random moment of each interval: at fixed ones a model's requests would meet
            # probes, or those to another model, always or never.
            steady = (number + self._rngs[model].random()) / RATE
            due = begun + (_in_waves(steady) if model == "llm" else steady)
            behind = time.monotonic() - _BEHIND_SECONDS - due
            begun += max(0.0, behind)
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            request = self._request(model, number)
            self._mirror.sent(request)
            # The sidecar is what reports failures; the traffic continues.
            with contextlib.suppress(TritonError):
                if model == "llm":
                    self._client.infer_stream(request, timeout_seconds=_TIMEOUT_SECONDS)
                    continue
                reply = self._client.infer(request, timeout_seconds=_TIMEOUT_SECONDS)
                if model in _LOGGED:
                    self._mirror.answered(model, reply)

    def _request(self, model: str, number: int) -> InferRequest:
        inputs, datatypes = self._inputs(model)
        version, name = self._version(model), f"demo-{number}"
        return InferRequest(model, version, name, inputs, datatypes)

    def _version(self, model: str) -> str:
        """Return the version to ask for; beside a canary, the earlier one by its number."""
        name, version, share = self._canary
        if model != name:
            return ""
        return version if self._rngs[model].random() < share else "1"

    def _inputs(self, model: str) -> tuple[dict[str, Array], dict[str, str]]:
        if model == "slow":
            rows = self._rngs[model].random(8, dtype=np.float32)
            return {"input": rows}, {"input": "FP32"}
        if model == "llm":
            return self._prompt()
        if model == "diabetes":
            row = self._row(
                model, self._older if self._moved.is_set() else self._patients
            )
            # Text goes as bytes objects, one element each.
            inputs = {
                name: value.astype(object) if value.dtype.kind == "S" else value
                for name, value in row.items()
            }
            types = {
                n: "BYTES" if v.dtype == object else "FP32" for n, v in inputs.items()
            }
            return {name: v.reshape(1, 1) for name, v in inputs.items()}, types
        pixels = self._row(model, self._digits)["pixels"].astype(np.float32)
        return {"pixels": pixels.reshape(1, -1)}, {"pixels": "FP32"}

    def _prompt(self) -> tuple[dict[str, Array], dict[str, str]]:
        words = self._rngs["llm"].choice(_WORDS, self._rngs["llm"].integers(5, 60))
        prompt = " ".join([_SYSTEM, *words])
        inputs: dict[str, Array] = {
            "text_input": np.array([prompt.encode()], object),
            "stream": np.array([True]),
        }
        return inputs, {"text_input": "BYTES", "stream": "BOOL"}

    def _row(self, model: str, rows: dict[str, Array]) -> dict[str, Array]:
        place = self._rngs[model].integers(len(next(iter(rows.values()))))
        return {name: column[place : place + 1] for name, column in rows.items()}


def _in_waves(steady: float) -> float:
    """Return when a request comes, in seconds, that would come then at a steady pace.

    All come in three random seconds of each five: the machine's power rises and falls with
    the model, whose share can then be told from all else.
    """
    wave, within = divmod(steady, 5.0)
    place, part = divmod(within * 3 / 5, 1.0)
    busy = sorted(np.random.default_rng(int(wave)).permutation(5)[:3])
    return 5.0 * wave + float(busy[int(place)]) + part


def _rows(path: Path) -> dict[str, Array]:
    """The columns of a held-out set, without its labels."""
    with np.load(path) as data:
        return {name: data[name] for name in data.files if name != "label"}
