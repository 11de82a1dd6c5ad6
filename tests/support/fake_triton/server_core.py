"""What the fake answers, before a port turns it into bytes: script, clock, bookkeeping."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from fake_triton import inference
from fake_triton.behaviours import (
    INVALID_ARGUMENT,
    Body,
    Hung,
    NotReady,
    Slow,
    Status,
)
from fake_triton.calls import (
    Document,
    EndedError,
    Ready,
    Reply,
    Text,
    received,
)
from fake_triton.counters import (
    metrics_text,
    statistics_document,
)
from fake_triton.fake_models import config_document, metadata_document
from fake_triton.journal import (
    Journal,
)
from fake_triton.repository import RefusedError, Repository, refused
from fake_triton.script import Plan, Script

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from fake_triton.calls import Call, Content
    from fake_triton.fake_models import FakeModel, Timings

EXTENSIONS: Final = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
OF_TRITON_ONLY: Final = {"statistics", "model_config", "trace_setting", "trace_update"}
"""Calls that other servers of the protocol do not have."""
NO_SUCH_CALL: Final = Status("UNIMPLEMENTED", 404, "Method not found!")
TRACING_OFF: Final = {
    "trace_level": ["OFF"],
    "trace_rate": ["1000"],
    "trace_count": ["-1"],
    "log_frequency": ["0"],
    "trace_mode": ["triton"],
    "trace_file": [""],
}
GONE_CHECK_SECONDS: Final = 0.05
LOAD_DURATIONS: Final = (2, 52)
"""From this version on the metrics page has each model's load time."""
HEALTH_OF_STUBS: Final = (2, 65)
"""From this version on readiness asks a Python model's process."""
IS_READY: Final = (2, 67)
"""From this version on a Python model may define `is_ready()`."""
IS_READY_SECONDS: Final = 5.0
"""When Triton gives up an `is_ready()` that hangs."""


class ServerCore:
    """Answers calls of both protocols and of the metrics port. Thread-safe."""

    def __init__(
        self,
        models: Iterable[FakeModel],
        *,
        name: str,
        version: str,
        strict_readiness: bool,
    ) -> None:
        self.repository = Repository(models)
        self.journal = Journal()
        self.script = Script()
        self.stopping = threading.Event()
        self.extra_metrics = ""
        self._strict_readiness = strict_readiness
        self._name = name
        self._is_triton = name == "triton"
        self._version = version
        numbers = version.split(".")[:2]
        self._release = tuple(int(n) for n in numbers if n.isdecimal())
        self._control_turn = threading.Lock()

    @property
    def binary_tensors(self) -> bool:
        """Whether HTTP takes tensors as bytes behind the JSON, as an extension of Triton."""
        return self._is_triton

    def now_ms(self) -> int:
        """The wall clock, in the statistics' unit."""
        return int(time.time() * 1000)

    @contextmanager
    def serving(self, call: Call) -> Generator[Reply]:
        """The reply to a call, which counts as in progress until the block ends.

        Raises EndedError when there is nobody to answer.
        """
        known = self.repository.knows(call.model)
        with self.journal.tracking(received(call), known=known):
            plan = self.script.plan(call.operation, call.protocol, call.model)
            yield Reply(self._content(call, plan), plan.delivery)

    def _content(self, call: Call, plan: Plan) -> Content:
        if plan.find(Hung):
            self._hang(call)
        if call.operation == "infer":
            return self._infer(call, plan)
        self._sleep(plan)
        status = plan.find(Status)
        if status is not None:
            return status
        body = plan.find(Body)
        if body is not None:
            return body
        try:
            with self._in_turn(call):
                return self._answer(call, plan)
        except RefusedError as refusal:
            return refusal.status

    def _hang(self, call: Call) -> None:
        while not self.stopping.wait(GONE_CHECK_SECONDS):
            if call.gone():
                break
        raise EndedError

    def _sleep(self, plan: Plan) -> None:
        slow = plan.find(Slow)
        if slow is not None and self.stopping.wait(slow.seconds):
            raise EndedError

    def sleep(self, seconds: float) -> None:
        """Wait; EndedError when the fake stops meanwhile."""
        if self.stopping.wait(seconds):
            raise EndedError

    def _answer(self, call: Call, plan: Plan) -> Content:
        no = plan.find(NotReady) is not None
        if not self._is_triton and call.operation in OF_TRITON_ONLY:
            return NO_SUCH_CALL
        match call.operation:
            case "server_live":
                return Ready(not no)
            case "server_ready" | "model_ready":
                return Ready(self._is_ready(call) and not no)
            case "metrics":
                return Text(self._metrics())
            case "server_metadata":
                return Document(self._server_metadata())
            case _:
                return Document(self._document(call))

    def _is_ready(self, call: Call) -> bool:
        asks_backends = self._release >= HEALTH_OF_STUBS
        if call.operation == "model_ready":
            if asks_backends:
                return self.repository.is_healthy(call.model, call.version)
            return self.repository.is_ready(call.model, call.version)
        if not self._strict_readiness:
            return True
        return self.repository.all_ready(healthy=asks_backends)

    @contextmanager
    def _in_turn(self, call: Call) -> Generator[None]:
        """Triton answers gRPC's control calls one after the other.

        It shows only where one takes long: while a Python model's `is_ready()` hangs,
        which Triton gives up after five seconds, all others wait.
        """
        if call.operation == "infer" or not self._asks_is_ready():
            yield
            return
        asks = call.operation == "model_ready" or (
            call.operation == "server_ready" and self._strict_readiness
        )
        hangs = asks and self.repository.readiness_hangs(call.model)
        with self._control_turn if call.protocol == "grpc" else nullcontext():
            if hangs:
                self.sleep(IS_READY_SECONDS)
            yield

    def _asks_is_ready(self) -> bool:
        return self._release >= IS_READY and self.repository.readiness_hangs("")

    def _document(self, call: Call) -> Any:
        match call.operation:
            case "model_metadata":
                return metadata_document(self._model(call))
            case "model_config":
                return config_document(self._model(call))
            case "statistics":
                return {"model_stats": self._statistics(call)}
            case "repository_index":
                return self.repository.index(ready_only=call.ready_only)
            case "trace_setting":
                return self._trace(call)
            case "trace_update":
                # Recorded: nothing of ours may change the settings of a server.
                raise refused(INVALID_ARGUMENT, "trace settings are read only here")
        return self._control(call)

    def _server_metadata(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "version": self._version,
            "extensions": list(EXTENSIONS) if self._is_triton else [],
        }

    def _model(self, call: Call) -> FakeModel:
        return self.repository.find(call.model, call.version)[0]

    def _statistics(self, call: Call) -> list[dict[str, Any]]:
        if call.model and not self.repository.is_ready(call.model, call.version):
            raise refused(
                INVALID_ARGUMENT, f"requested model '{call.model}' is not available"
            )
        return [
            statistics_document(name, version, counted)
            for name, version, counted in self.repository.statistics()
            if call.model in ("", name) and call.version in ("", version)
        ]

    def _metrics(self) -> str:
        rows = list(self.repository.metrics())
        loads = self._release >= LOAD_DURATIONS
        return metrics_text(rows, load_durations=loads) + self.extra_metrics

    def _control(self, call: Call) -> dict[str, Any]:
        if call.operation == "repository_load":
            self.repository.load(call.model)
        else:
            self.repository.unload(call.model)
        return {}

    def _trace(self, call: Call) -> dict[str, list[str]]:
        if call.model and not self.repository.knows(call.model):
            raise refused(INVALID_ARGUMENT, f"Request for unknown model : {call.model}")
        return TRACING_OFF

    def _infer(self, call: Call, plan: Plan) -> Content:
        request = cast("inference.InferRequest", call.infer)
        try:
            model, version = self.repository.find(call.model, call.version)
            inference.check(model, request)
        except RefusedError as refusal:
            self._sleep(plan)
            return plan.find(Status) or refusal.status
        if self.repository.stub_dead(model.name):
            # Triton counts it as a failure of the backend.
            dead = Status(
                "INTERNAL",
                500,
                f"Stub process '{model.name}_0_0' is not healthy.",
                counted="BACKEND",
            )
            return self._counted(model, version, request, Plan((dead,))) or dead
        self.repository.pending(model.name, 1)
        try:
            self._sleep(plan)
        finally:
            self.repository.pending(model.name, -1)
        instead = self._counted(model, version, request, plan)
        if instead is not None:
            return instead
        if call.streamed:
            return tuple(
                inference.spoilt(good, plan.tensor_faults)
                for good in inference.stream(model, version, request)
            )
        good = inference.answer(model, version, request)
        return inference.spoilt(good, plan.tensor_faults)

    def _counted(
        self,
        model: FakeModel,
        version: str,
        request: inference.InferRequest,
        plan: Plan,
    ) -> Status | Body | None:
        """Count the inference; what is answered instead of tensors, if anything."""
        timings = _timings(model, plan)
        rows = inference.rows(model, request)
        status = plan.find(Status)
        counted = "success" if status is None else status.counted
        if counted == "success":
            self.repository.succeeded(
                model.name, version, rows=rows, timings=timings, now_ms=self.now_ms()
            )
        elif counted != "no":
            self.repository.failed(
                model.name, version, rows=rows, reason=counted, timings=timings
            )
        return status or plan.find(Body)


def _timings(model: FakeModel, plan: Plan) -> Timings:
    slow = plan.find(Slow)
    if slow is None or slow.phase == "network":
        return model.timings
    late_ns = int(slow.seconds * 1e9)
    return replace(
        model.timings, compute_infer_ns=model.timings.compute_infer_ns + late_ns
    )
