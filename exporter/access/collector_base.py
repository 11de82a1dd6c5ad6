"""The interface of collectors, and what they are built with."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from pydantic import Field

from exporter.access.calibration_board import CalibrationBoard
from exporter.access.inventory import InventoryBoard
from exporter.access.mirror_hub import MirrorHub
from exporter.access.own_traffic import OwnTraffic
from exporter.access.readiness import ReadinessHold
from exporter.access.span_buffer import SpanBuffer
from exporter.access.work_board import WorkBoard
from exporter.errors import UnsupportedError
from exporter.settings import ModelFilter, Settings
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from exporter.openai.openai_client import OpenAiClient
    from exporter.samples import AnySample
    from exporter.triton.http import HttpClient

    Server = GrpcClient | OpenAiClient


@dataclass(frozen=True, slots=True)
class Access:
    """The clients and shared state of a collector or probe; never the configuration."""

    server: Server
    """The main client; features for any kind of server use what both kinds have."""
    http: HttpClient | None
    metrics: HttpClient | None
    models: ModelFilter
    board: InventoryBoard
    own: OwnTraffic
    clock: Callable[[], float]
    """Monotonic seconds."""
    spans: SpanBuffer
    exposed: Callable[[], Iterable[AnySample]]
    """All samples that are exposed now, for objectives and control charts. Each
    collector's are followed by its own metrics (`Meter.samples`)."""
    mirror: MirrorHub
    """Production requests that the taps received, for features that need the data."""
    readiness: ReadinessHold = field(default_factory=ReadinessHold)
    """Times at which our readiness requests delayed the server's other answers."""
    work: WorkBoard = field(default_factory=WorkBoard)
    """Busy time of the models, by which energy is divided."""
    calibration: CalibrationBoard = field(default_factory=CalibrationBoard)
    """Measured accuracy by confidence, as golden probes found it."""

    @property
    def grpc(self) -> GrpcClient:
        """The same client, for features that the configuration refuses without Triton.

        Raises:
            UnsupportedError: the server is not Triton.
        """
        if not isinstance(self.server, GrpcClient):
            raise UnsupportedError(f"{self.server.address} is not Triton")
        return self.server

    def close(self) -> None:
        """Close the connections of all clients."""
        for client in (self.server, self.http, self.metrics):
            if client is not None:
                client.close()

    @classmethod
    def detached(
        cls,
        server: Server,
        *,
        http: HttpClient | None = None,
        metrics: HttpClient | None = None,
        models: ModelFilter | None = None,
        own: OwnTraffic | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Access:
        """Return an access without a sidecar around it, for commands and `/probe`."""
        return cls(
            server=server,
            http=http,
            metrics=metrics,
            models=models or ModelFilter(),
            board=InventoryBoard(),
            own=OwnTraffic(run_id=secrets.token_hex(4)) if own is None else own,
            clock=clock,
            spans=SpanBuffer(time.time_ns, secrets.SystemRandom()),
            exposed=tuple,
            mirror=MirrorHub(),
        )


class Collector(Protocol):
    """One source of samples."""

    def collect(self) -> Sequence[AnySample]:
        """Read the source once, in a worker thread.

        Raises:
            TritonError: the source could not be read; the run counts as failed.
        """
        ...


@runtime_checkable
class Documented(Protocol):
    """A collector that has more to say than numbers."""

    def document(self) -> dict[str, Any]:
        """Sections of /api/v1/status by name, JSON-able; reads memory only."""
        ...


class CollectorSettings(Settings):
    """Settings that every collector has."""

    needs_triton: ClassVar[bool] = True
    """False if it has data of an OpenAI-compatible server too."""
    interval_seconds: float = Field(default=5.0, gt=0.05, le=3600)
    """Time between the starts of two runs."""
    deadline_seconds: float = Field(default=4.0, gt=0, le=3600)
    """A run that takes longer counts as failed, and its samples are discarded."""
    series_limit: int = Field(default=20_000, ge=1, le=1_000_000)
    """Maximum number of series per run; series beyond it are dropped and counted."""

    def build(self, access: Access) -> Collector:
        """The collector these settings describe."""
        raise NotImplementedError
