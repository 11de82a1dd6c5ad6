"""A real NVIDIA board, its energy by the driver's own counter, and load on a real Triton."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import fake_nvml
import numpy as np
import pynvml

from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

NONE: Final = (
    "no NVIDIA GPU here (the driver's libnvidia-ml.so.1 shows no board), or tests with a "
    "scripted one ran before in this process: run tests/gpu alone"
)
_TIMEOUT_SECONDS: Final = 30.0


@contextlib.contextmanager
def first_board() -> Generator[Any | None]:
    """The handle of the first board while the driver's library is open; None without one.

    In a process that loaded the scripted library there is none.
    """
    if fake_nvml.is_loaded():
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield (
            pynvml.nvmlDeviceGetHandleByIndex(0)
            if pynvml.nvmlDeviceGetCount()
            else None
        )
    finally:
        pynvml.nvmlShutdown()


def counter_joules(handle: Any) -> float:
    """Energy since the driver was loaded."""
    return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000


@dataclass(frozen=True)
class Span:
    """Energy of the board over a time."""

    seconds: float
    joules: float

    @property
    def watts(self) -> float:
        return self.joules / self.seconds


def measured(handle: Any, work: Callable[[], None]) -> Span:
    """The board's energy while `work` runs."""
    started, before = time.monotonic(), counter_joules(handle)
    work()
    joules = counter_joules(handle) - before
    return Span(time.monotonic() - started, joules)


class Sender:
    """Sends production requests of one element to the models, one at a time."""

    def __init__(self, grpc: str) -> None:
        self._client = GrpcClient(grpc)
        self.sent: dict[str, int] = {}

    def infer(self, model: str) -> None:
        count = self.sent.get(model, 0) + 1
        request = InferRequest(
            model,
            "",
            f"production-{model}-{count}",
            {"x": np.ones(1, np.float32)},
            {"x": "FP32"},
            {},
        )
        self._client.infer(request, timeout_seconds=_TIMEOUT_SECONDS)
        self.sent[model] = count

    def steadily(self, model: str, seconds: float) -> None:
        """One request after the other."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.infer(model)

    def close(self) -> None:
        self._client.close()


@dataclass
class Mixed:
    """Spells of load on several models, drawn at random."""

    sender: Sender
    models: tuple[str, ...]
    seconds: float
    busy: float
    """Share of the time in which each model, or one of them, is busy."""
    seed: int
    errors: list[BaseException] = field(default_factory=list)

    def overlapping(self) -> None:
        """Every model by itself, so that their kernels share the board at times."""
        until = time.monotonic() + self.seconds
        threads = [
            threading.Thread(target=self._spells, args=(model, number, until))
            for number, model in enumerate(self.models)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _spells(self, model: str, number: int, until: float) -> None:
        rng = np.random.default_rng((self.seed, number))
        try:
            while time.monotonic() < until:
                self._spell(model, rng, until)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.errors.append(error)

    def _spell(self, model: str, rng: np.random.Generator, until: float) -> None:
        left = until - time.monotonic()
        self.sender.steadily(model, min(left, rng.exponential(3.0 * self.busy)))
        left = until - time.monotonic()
        time.sleep(max(0.0, min(left, rng.exponential(3.0 * (1 - self.busy)))))
