"""Production latency from Triton's traces: trace files, or OpenTelemetry sent to us."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from exporter.access.collector_base import Access, CollectorSettings
from exporter.features.traces.trace_files import TraceFileFollower, TraceFilesSettings
from exporter.features.traces.trace_receiver import SOURCE as OTLP
from exporter.features.traces.trace_receiver import TraceReceiver
from exporter.features.traces.trace_sink import RequestLimits, SinkSettings, TraceSink
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.inventory import ModelKey
    from exporter.samples import AnySample
    from exporter.taps.tap_route import TapRoute
    from exporter.triton.protocol_types import ModelSpec


FILE: Final = "file"
SOURCES: Final = (OTLP, FILE)
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


class OtlpTapSettings(Settings):
    """OTLP/HTTP traces sent to the tap, at /v1/traces."""

    max_body_bytes: int = Field(default=2 << 20, ge=1024, le=64 << 20)
    """Maximum size of a body, also after decompression. Triton sends about 300 kB, plus
    up to 200 bytes per response of streamed answers. A malicious body takes up to 32
    times as much memory while it is parsed; bodies are parsed one at a time."""


class TracesSettings(CollectorSettings):
    """Latency and phases of production requests, from Triton's traces."""

    kind: Literal["traces"] = "traces"
    otlp: OtlpTapSettings | None = Field(default=OtlpTapSettings())
    """Receive OpenTelemetry traces on the tap; null if Triton writes trace files."""
    files: TraceFilesSettings | None = Field(default=None)
    """Follow trace files."""
    window_seconds: float = Field(default=300.0, ge=1, le=86400)
    """Length of the sliding window of the quantiles."""
    token_responses: tuple[str, ...] = Field(default=(), max_length=1000)
    """Shell-style patterns of the models whose responses are one token each."""
    limits: dict[Name, RequestLimits] = Field(default={}, max_length=20)
    """Limits that a request has to meet all at once, by name, for objectives of kind
    `goodput`."""
    unknown_models: int = Field(default=20, ge=0, le=10_000)
    """Maximum number of models with traces that the server does not list. Traces of
    further ones are dropped."""

    def build(self, access: Access) -> TracesCollector:
        """The collector."""
        return TracesCollector(self, access)


class TracesCollector:
    """Holds the sink, and feeds it."""

    def __init__(self, settings: TracesSettings, access: Access) -> None:
        self._clock = access.clock
        self._deadline_seconds = settings.deadline_seconds
        self._follower: TraceFileFollower | None = None
        if settings.files is not None:
            self._follower = TraceFileFollower(settings.files, access.clock)
        self._work = access.work
        self._board = access.board
        self._sink = TraceSink(
            SinkSettings(
                settings.window_seconds,
                settings.unknown_models,
                SOURCES,
                access.own.run_id,
                settings.token_responses,
                settings.limits,
            ),
            known=lambda: access.board.current.models,
            wanted=access.models.matches,
            decoupled=lambda key: (
                (spec := self._spec(key)) is not None and spec.decoupled
            ),
            wall_clock=time.time,
        )
        self._receiver: TraceReceiver | None = None
        if settings.otlp is not None:
            self._receiver = TraceReceiver(
                self._sink,
                max_body_bytes=settings.otlp.max_body_bytes,
                clock=access.clock,
                is_ensemble=lambda key: bool((spec := self._spec(key)) and spec.steps),
            )

    def _spec(self, key: ModelKey) -> ModelSpec | None:
        return self._board.current.models.get(key)

    def routes(self) -> Sequence[TapRoute]:
        """Return the routes that the tap serves."""
        return () if self._receiver is None else (self._receiver.route(),)

    def collect(self) -> Sequence[AnySample]:
        """Return the samples of all traces received so far.

        Raises:
            TritonError: the trace folder cannot be listed.
        """
        samples: list[AnySample] = []
        if self._receiver is not None:
            self._receiver.expire()
        if self._follower is not None:
            for parsed in self._follower.poll(self._deadline_seconds / 4):
                self._sink.add(FILE, parsed.traces, self._clock())
                self._sink.count(FILE, "invalid", parsed.invalid)
                self._sink.count(FILE, "malformed", parsed.malformed)
            samples += self._follower.samples()
        self._work.traced = self._sink.token_responses()
        return [*samples, *self._sink.samples(self._clock())]

    def close(self) -> None:
        """Do nothing: there is no background work."""
