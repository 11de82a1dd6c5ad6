"""Triton's counters during a search, and the saturated resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from loadtests.capacity.search_report import SaturationReport
from loadtests.tls import grpc_credentials
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.triton.protocol_types import ModelStatistics
    from loadtests.machine_guard import Watch
    from loadtests.target import Target

Resource = Literal["queue", "compute", "server cpu", "sender", "unknown"]
_TIMEOUT_SECONDS: Final = 2.0
_FULL_CPU: Final = 0.85
_QUEUED: Final = 0.3
_BUSY: Final = 0.7
_SENDER: Final = 0.8


class ServerSide:
    """Reads Triton's statistics over gRPC; unknown with other protocols or servers."""

    def __init__(
        self, target: Target, models: frozenset[str], *, streamed: bool = False
    ) -> None:
        self._target = target
        self._models = models
        self._streamed = streamed
        """For such a model Triton counts the time to accept a request, not to answer it."""
        self._client: GrpcClient | None = None
        if target.protocol == "grpc":
            self._client = GrpcClient(
                target.address,
                credentials=grpc_credentials(target),
                headers=target.headers,
            )

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def statistics(self) -> list[ModelStatistics]:
        """Cumulative counters of the models; empty where unknown."""
        if self._client is None or self._streamed:
            return []
        try:
            found = self._client.statistics(timeout_seconds=_TIMEOUT_SECONDS)
        except TritonError:
            return []
        return [entry for entry in found if entry.name in self._models]


@dataclass(frozen=True, slots=True)
class Phases:
    """Mean seconds of a request in the server over a run, and what executed."""

    queue_seconds: float
    compute_input_seconds: float
    compute_infer_seconds: float
    compute_output_seconds: float
    requests: int
    mean_batch: float | None
    busy: float
    """Executions under way on average: busy seconds a second."""

    @property
    def compute_seconds(self) -> float:
        """Time outside the queue."""
        return (
            self.compute_input_seconds
            + self.compute_infer_seconds
            + self.compute_output_seconds
        )

    @property
    def queue_share(self) -> float:
        """Share of the time in the queue."""
        whole = self.queue_seconds + self.compute_seconds
        return self.queue_seconds / whole if whole else 0.0


def phases(
    before: Sequence[ModelStatistics], after: Sequence[ModelStatistics], seconds: float
) -> Phases | None:
    """Return the increase between two readings; None without one, or if counters fell."""
    started = {s.key: s for s in before}
    pairs = [(started[key], s) for s in after if (key := s.key) in started]

    def rise(name: str) -> tuple[int, float]:
        return (
            sum(getattr(b, name).count - getattr(a, name).count for a, b in pairs),
            sum(getattr(b, name).ns - getattr(a, name).ns for a, b in pairs) / 1e9,
        )

    requests = rise("success")[0]
    if requests <= 0 or seconds <= 0:
        return None
    executions = sum(b.execution_count - a.execution_count for a, b in pairs)
    inferences = sum(b.inference_count - a.inference_count for a, b in pairs)
    # In the batch statistics an execution's time stands once, not once a request.
    spent = sum(_busy_ns(b) - _busy_ns(a) for a, b in pairs) / 1e9
    return Phases(
        queue_seconds=rise("queue")[1] / requests,
        compute_input_seconds=rise("compute_input")[1] / requests,
        compute_infer_seconds=rise("compute_infer")[1] / requests,
        compute_output_seconds=rise("compute_output")[1] / requests,
        requests=requests,
        mean_batch=inferences / executions if executions > 0 else None,
        busy=spent / seconds,
    )


def _busy_ns(statistics: ModelStatistics) -> int:
    return sum(
        part.ns
        for batch in statistics.batches
        for part in (batch.compute_input, batch.compute_infer, batch.compute_output)
    )


def saturated(
    phase: Phases | None, watch: Watch | None, *, instances: int | None, cpus: int
) -> SaturationReport:
    """Return the resource that is saturated at the boundary.

    The sender is checked first, since a saturated one hides the server; then the
    server's processors; then its instances, if they are busy while requests queue.
    """
    sender = watch.mean("sender_cpu") if watch else None
    if sender is not None and sender > _SENDER:
        return _full("sender", f"the sender used {percent(sender)} of its core")
    server = watch.mean("server_cpu") if watch else None
    if server is not None and server > _FULL_CPU * cpus:
        return _full("server cpu", f"the server used {server:.2g} of {cpus} processors")
    if phase is None:
        return _full(
            "unknown", "the server has no suitable statistics, as for streamed answers"
        )
    evidence = (
        f"{percent(phase.queue_share)} of a request's time in the server was spent in the "
        f"queue ({phase.queue_seconds * 1e3:.3g} ms; compute "
        f"{phase.compute_seconds * 1e3:.3g} ms)"
    )
    busy = None if not instances else phase.busy / instances
    if busy is not None and busy > _BUSY:
        return _full(
            "compute",
            f"its {instances} instance{'s' * (instances != 1)} executed {percent(busy)} of "
            f"the time; {evidence}",
        )
    if phase.queue_share > _QUEUED:
        return _full("queue", evidence)
    return _full("unknown", evidence)


def _full(resource: Resource, evidence: str) -> SaturationReport:
    return SaturationReport(resource=resource, evidence=evidence)
