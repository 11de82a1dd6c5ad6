"""FakeTriton: a scripted Triton on real sockets."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from fake_triton.calls import Limits
from fake_triton.grpc_port import GrpcPort
from fake_triton.http_port import HttpPort
from fake_triton.models import FakeModel
from fake_triton.script import On
from fake_triton.server_core import ServerCore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from fake_triton.counters import FailureReason
    from fake_triton.journal import (
        Concurrency,
        Operation,
        Protocol,
        ReceivedRequest,
        Scripted,
    )

DEFAULT_LIMITS: Final = Limits()


class FakeTriton:
    """A KServe-v2 server with Triton's extensions, for what a real one cannot be made to do.

    gRPC, HTTP and metrics listen on free loopback ports from construction to `stop()`,
    each answered by threads of its own, so that it serves synchronous and asynchronous
    tests alike:

        with FakeTriton([FakeModel("m")]) as fake:
            fake.on("infer", model="m").reply(Slow(0.5), times=3)
            ...  # talk to fake.grpc, fake.http, fake.metrics
            assert [r.request_id for r in fake.requests] == [...]

    Unscripted it behaves well: answers are right in type and shape and depend on the
    inputs alone, requests that do not fit are refused in Triton's words, and statistics
    and metrics agree with what was served. With `strict_readiness` one model that is not
    ready makes the server not ready, as in Triton. `decodes_urls` makes HTTP resolve percent
    escapes in model names, which Triton 2.51 does not. `limits` keep it bounded.
    `version` decides what readiness means (`kill_stub`, `hang_is_ready`) and which
    metrics the page has. With another `name` it lists no extensions and takes no binary
    tensors over HTTP, as other servers of the protocol.
    """

    def __init__(
        self,
        models: Iterable[FakeModel] = (FakeModel(),),
        *,
        name: str = "triton",
        version: str = "2.51.0",
        trace_file: str = "/traces/trace.json",
        strict_readiness: bool = True,
        decodes_urls: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._core = ServerCore(
            models,
            name=name,
            version=version,
            trace_file=trace_file,
            strict_readiness=strict_readiness,
            kept_requests=limits.kept_requests,
            clock=clock,
        )
        self._grpc = GrpcPort(
            self._core,
            limits=limits,
        )
        self._http = HttpPort(
            self._core,
            decodes_urls=decodes_urls,
            limits=limits,
        )
        self.grpc = self._grpc.listener.address
        """Address of the gRPC port, "127.0.0.1:PORT"."""
        self.http = self._http.listener.address
        """Address of the HTTP port."""
        self.metrics = self._http.metrics.address
        """Address of the metrics port; the page is /metrics."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close every port and connection, end every hung call, wait for every thread."""
        self._core.stopping.set()
        self._http.listener.close()
        self._http.metrics.close()
        self._grpc.stop()

    # Script.

    def on(
        self,
        operation: Scripted,
        *,
        model: str | None = None,
        protocol: Protocol | None = None,
    ) -> On:
        """The calls to script: `fake.on("infer", model="m").reply(Hung())`.

        "any" is every operation on every port; `model=None` every model and the calls
        that name none. `infer` includes streamed inference.
        """
        return On(self._core.script, operation, model, protocol)

    def behave(self) -> None:
        """Forget the whole script: every later call is answered well."""
        self._core.script.clear()

    @contextmanager
    def down(self) -> Generator[None]:
        """For the block nobody listens: connections are cut, new ones are refused.

        Counters stay; use `reset_counters()` for a server that was started anew.
        """
        listeners = (self._grpc.listener, self._http.listener, self._http.metrics)
        for listener in listeners:
            listener.close()
        try:
            yield
        finally:
            for listener in listeners:
                listener.open()

    # Models.

    def add(self, model: FakeModel) -> None:
        """Put a model in, or replace the one of that name; its counters start at 0."""
        self._core.repository.add(model)

    def remove(self, name: str) -> None:
        """Take a model out of the repository and of every answer."""
        self._core.repository.remove(name)

    def vanish(self, name: str) -> None:
        """The index still lists the model as READY; no other call finds it any more."""
        self._core.repository.vanish(name)

    def unload(self, name: str, reason: str = "unloaded") -> None:
        """The index lists it as UNAVAILABLE with `reason`; its counters are gone."""
        self._core.repository.unload(name, reason)

    def load(self, name: str) -> None:
        """Make a model ready. Of a ready model this is a reload.

        A reload sets the statistics to 0 while the nv_* counters go on (Triton 2.51).
        """
        self._core.repository.load(name)

    def kill_stub(self, name: str) -> None:
        """Kill the model's Python process: every request fails, the index says READY.

        Readiness stays before version 2.65; from there on the model is not ready, and
        with strict readiness the server neither. Unload and load repair it.
        """
        self._core.repository.kill_stub(name)

    def hang_is_ready(self, name: str, *, hangs: bool = True) -> None:
        """Let the model's `is_ready()` hang, which it has from version 2.67 on.

        Each question about its readiness is answered "no" after 5 s; over gRPC every
        other control call waits meanwhile.
        """
        self._core.repository.hang_is_ready(name, hangs=hangs)

    # Counters.

    def served(
        self,
        model: str,
        requests: int,
        *,
        version: str = "",
        rows: int = 1,
        executions: int | None = None,
    ) -> None:
        """Count successful requests of `rows` inferences that nobody sent.

        `executions` below `requests` means dynamic batching; it has to divide them.
        """
        found, of_version = self._core.repository.find(model, version)
        ran = requests if executions is None else executions
        if requests % ran:
            raise ValueError(f"{ran} executions do not divide {requests} requests")
        self._core.repository.succeeded(
            model,
            of_version,
            rows=rows,
            timings=found.timings,
            now_ms=self._core.now_ms(),
            requests=requests,
            executions=ran,
        )

    def failed(
        self,
        model: str,
        requests: int,
        *,
        version: str = "",
        reason: FailureReason = "BACKEND",
    ) -> None:
        """Count failed requests that nobody sent."""
        found, of_version = self._core.repository.find(model, version)
        self._core.repository.failed(
            model,
            of_version,
            rows=1,
            reason=reason,
            timings=found.timings,
            requests=requests,
        )

    def reset_counters(self) -> None:
        """Statistics and metrics of every model at 0, as after a restart."""
        self._core.repository.restart()

    def add_metrics(self, text: str) -> None:
        """Show these lines at the end of the metrics page as well (nv_gpu_*, say)."""
        self._core.extra_metrics = text

    # What came.

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """What was received on every port, oldest first, the last ones (`Limits.kept_requests`)."""
        return self._core.journal.records()

    @property
    def max_concurrent(self) -> int:
        """The most inferences in progress at any one time."""
        return self.concurrency().peak

    def concurrency(
        self,
        operation: Operation = "infer",
        *,
        model: str | None = None,
        protocol: Protocol | None = None,
    ) -> Concurrency:
        """Calls of one operation in progress: now, and at most."""
        return self._core.journal.concurrency(operation, model, protocol)

    def received(
        self,
        operation: Operation,
        *,
        model: str | None = None,
        protocol: Protocol | None = None,
    ) -> int:
        """How many calls of this kind came in all, kept or not."""
        return self._core.journal.received(operation, model, protocol)

    def wait_for(
        self,
        operation: Operation,
        *,
        model: str | None = None,
        protocol: Protocol | None = None,
        count: int = 1,
        timeout_seconds: float = 10.0,
    ) -> int:
        """Wait until `count` such calls have come in all; TimeoutError if they do not."""
        return self._core.journal.wait_for(
            operation, model, protocol, count=count, timeout_seconds=timeout_seconds
        )

    def forget(self) -> None:
        """Drop the records, counts and peaks of what was received."""
        self._core.journal.clear()
