"""FakeTriton: a scripted Triton on real sockets."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from fake_triton.fake_models import FakeModel
from fake_triton.grpc_port import GrpcPort
from fake_triton.http_port import HttpPort
from fake_triton.script import On
from fake_triton.server_core import ServerCore

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from fake_triton.counters import FailureReason
    from fake_triton.journal import (
        Protocol,
        ReceivedRequest,
        Scripted,
    )


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
    ready makes the server not ready, as in Triton.
    `version` decides what readiness means (`kill_stub`, `hang_is_ready`) and which
    metrics the page has. With another `name` it lists no extensions, takes no binary
    tensors over HTTP, and has no statistics, model configurations and trace settings, as
    other servers of the protocol.
    """

    def __init__(
        self,
        models: Iterable[FakeModel] = (FakeModel(),),
        *,
        name: str = "triton",
        version: str = "2.51.0",
        strict_readiness: bool = True,
    ) -> None:
        self._core = ServerCore(
            models,
            name=name,
            version=version,
            strict_readiness=strict_readiness,
        )
        self._grpc = GrpcPort(self._core)
        self._http = HttpPort(self._core)
        self.grpc = self._grpc.listener.address
        """Address of the gRPC port, "127.0.0.1:PORT"."""
        self.http = self._http.listener.address
        """Address of the HTTP port."""
        self.metrics = self._http.metrics.address
        """Address of the metrics port; the page is /metrics."""
        repository, journal = self._core.repository, self._core.journal
        self.add, self.remove = repository.add, repository.remove
        self.vanish, self.unload, self.load = (
            repository.vanish,
            repository.unload,
            repository.load,
        )
        self.kill_stub, self.hang_is_ready = (
            repository.kill_stub,
            repository.hang_is_ready,
        )
        self.reset_counters = repository.restart
        self.received, self.wait_for = journal.received, journal.wait_for
        self.peak, self.forget = journal.peak, journal.forget

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

    def add_metrics(self, text: str) -> None:
        """Show these lines at the end of the metrics page as well (nv_gpu_*, say)."""
        self._core.extra_metrics = text

    # What came.

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """Requests received on all ports, oldest first: the last `KEPT_REQUESTS`."""
        return self._core.journal.records()

    @property
    def max_concurrent(self) -> int:
        """The most inferences in progress at any one time."""
        return self._core.journal.peak()
