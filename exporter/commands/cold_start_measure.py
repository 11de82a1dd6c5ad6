"""Unload and load one model again and again, and time the load and the first answers."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import errors
from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import make_payload
from exporter.system.processes import family_of
from exporter.system.termination import uninterrupted
from exporter.triton.http_path import control_path
from exporter.triton.metrics_page import lines_of, read_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.triton.grpc import GrpcClient
    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import ModelSpec

_POLL_SECONDS: Final = 0.01
_ASK_SECONDS: Final = 5.0
_WARM_REQUESTS: Final = 20
_HOST_MEMORY: Final = "nv_cpu_memory_used_bytes"
_GPU_MEMORY: Final = "nv_gpu_memory_used_bytes"
_MOST_SERIES: Final = 10_000


class ColdStartError(errors.TritonwatchError):
    """The model cannot be loaded and unloaded."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in use; None where there is no source."""

    server: int | None = None
    """Resident, of the server and its children, where its pid is known."""
    gpu: int | None = None
    """Memory of all boards, by Triton's own metrics."""
    host: int | None = None
    """Memory of the whole host, other processes included, by Triton's own metrics."""
    model: int | None = None
    """Triton's own estimate for the model."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """One load. Seconds."""

    load: float
    """Time from the load request to Triton's answer that it is done."""
    first_inference: float
    """Time from the load request to the first answered inference."""
    cold_inference: float
    """Duration of that first inference."""
    warm_inference: float
    """Median of those after it."""
    unloaded: Memory
    loaded: Memory


class Server:
    """Access to a server: its control, inference, metrics and, if local, pid."""

    def __init__(
        self,
        grpc: GrpcClient,
        http: HttpClient,
        metrics: HttpClient | None,
        *,
        pid: int | None,
        timeout_seconds: float,
    ) -> None:
        self.grpc, self._http, self._metrics = grpc, http, metrics
        self._pid = pid
        self._timeout_seconds = timeout_seconds
        self._rng = np.random.default_rng(0)

    def load(self, model: str) -> None:
        """Load it, and wait until it is ready."""
        self._control(model, "load")
        self._await(model, lambda states: "READY" in states)

    def unload(self, model: str) -> None:
        """Unload it, and wait until it is completely unloaded."""
        self._control(model, "unload")
        self._await(model, lambda states: not states & {"READY", "UNLOADING"})

    def states(self, model: str) -> set[str]:
        """The states of its versions."""
        index = self.grpc.repository_index(timeout_seconds=self._timeout_seconds)
        found = {entry.state for entry in index if entry.name == model}
        if not found:
            raise ColdStartError(
                f"found no model {model!r}; the server has "
                f"{sorted({entry.name for entry in index})}"
            )
        return found

    def spec(self, model: str) -> ModelSpec:
        """Return the specification of the version that answers now."""
        return self.grpc.model_spec(model, "", timeout_seconds=self._timeout_seconds)

    def infer(self, spec: ModelSpec, request_id: str) -> float:
        """Seconds that one inference of made-up tensors took."""
        payload = make_payload(spec, {}, self._rng)
        identifier = f"{REQUEST_ID_PREFIX}{request_id}"
        request = own_request(spec, identifier, payload.inputs, version="")
        send = self.grpc.infer_stream if spec.decoupled else self.grpc.infer
        return send(request, timeout_seconds=self._timeout_seconds).duration_seconds

    def memory(self, model: str) -> Memory:
        """Return the memory in use now."""
        entries = self.grpc.statistics(timeout_seconds=self._timeout_seconds)
        shown = self._shown()
        # 0 is what Triton says when it could not read it.
        return Memory(
            None if self._pid is None else resident_bytes(self._pid),
            round(shown[_GPU_MEMORY]) or None,
            round(shown[_HOST_MEMORY]) or None,
            sum(e.memory_bytes for e in entries if e.name == model) or None,
        )

    def _shown(self) -> dict[str, float]:
        """Bytes by series of Triton's metrics page; none where that cannot be read."""
        shown = {_GPU_MEMORY: 0.0, _HOST_MEMORY: 0.0}
        if self._metrics is not None:
            with contextlib.suppress(errors.TritonError):
                page = self._metrics.get("/metrics", timeout_seconds=_ASK_SECONDS)
                # By line: models write to this page, too, and may make it unreadable.
                lines = lines_of(shown)
                for name, _, value in read_page(
                    page, lines, most_series=_MOST_SERIES
                ).series:
                    shown[name] += value
        return shown

    def _control(self, model: str, action: str) -> None:
        path = f"{control_path(model)}/{action}"
        try:
            self._http.post(path, b"{}", timeout_seconds=self._timeout_seconds)
        except errors.TritonError as error:
            if "explicit model" in str(error) or "not allowed" in str(error):
                raise ColdStartError(
                    f"Triton refuses to {action} {model}: {error}; start it with "
                    "--model-control-mode=explicit"
                ) from None
            raise

    def _await(self, model: str, holds: Callable[[set[str]], bool]) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while not holds(states := self.states(model)):
            if time.monotonic() > deadline:
                raise ColdStartError(
                    f"{model} is {sorted(states)} after {self._timeout_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)


def measure(
    server: Server, model: str, repeat: int, progress: Callable[[str], None]
) -> list[Repetition]:
    """Unload and load `repeat` times; the model is left as it was found.

    Raises:
        ColdStartError: it cannot be loaded or unloaded.
        TritonError: the server does not answer.
    """
    was_ready = "READY" in server.states(model)
    found: list[Repetition] = []
    try:
        for number in range(1, repeat + 1):
            found.append(_repetition(server, model))
            progress(
                f"{number} of {repeat}: load {found[-1].load:.3f} s, first answer "
                f"after {found[-1].first_inference:.3f} s"
            )
    finally:
        with uninterrupted():
            if was_ready:
                server.load(model)
            else:
                server.unload(model)
    return found


def _repetition(server: Server, model: str) -> Repetition:
    server.unload(model)
    unloaded = server.memory(model)
    began = time.monotonic()
    server.load(model)
    load = time.monotonic() - began
    spec = server.spec(model)
    cold = server.infer(spec, "cold-start-1")
    first = time.monotonic() - began
    warm = [server.infer(spec, f"cold-start-{n}") for n in range(2, _WARM_REQUESTS + 2)]
    loaded = server.memory(model)
    return Repetition(load, first, cold, float(np.median(warm)), unloaded, loaded)


def resident_bytes(pid: int) -> int | None:
    """Return the memory of a process and its descendants; shared pages count once (Pss)."""
    total = 0
    for member in family_of({pid}):
        try:
            text = Path(f"/proc/{member}/smaps_rollup").read_text("ascii")
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) * 1024
            for line in text.splitlines()
            if line.startswith("Pss:")
        )
    return total or None
