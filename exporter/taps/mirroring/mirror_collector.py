"""Mirrored production requests on the taps: KServe-v2, OpenAI's and CloudEvents."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from exporter.access.collector_base import Access, CollectorSettings
from exporter.settings import ModelMention, Settings, literal_mentions
from exporter.taps.mirroring.cloudevents import EventSink
from exporter.taps.mirroring.intake import Intake, Rates
from exporter.taps.mirroring.mirrored_http import InferSink
from exporter.taps.mirroring.mirrored_messages import MessageSink
from exporter.taps.mirroring.openai_body import CompletionSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.samples import AnySample
    from exporter.taps.tap_route import MessageRoute, TapRoute


class CloudEventsSettings(Settings):
    """KServe's payload logger: set its `logger.url` to the tap."""

    path: str = Field(default="/", pattern=r"^/[^\s?#]*$", max_length=1024)
    """Path that the logger posts to: "/" if its URL has no path."""
    models: dict[str, str] = Field(default={}, max_length=10_000)
    """Model name by InferenceService. Without an entry, the model with the name of the
    service is used, or the server's only model."""


class SamplingSettings(Settings):
    """Sampling rate of one model."""

    samples_per_second: float = Field(default=..., gt=0, le=100_000)
    """Approximate number of requests, and of responses, per second."""


class MirrorSettings(CollectorSettings):
    """Production requests that a proxy mirrors, or that KServe logs, to the tap."""

    needs_triton: ClassVar[bool] = False
    kind: Literal["mirror"] = "mirror"
    http: bool = Field(default=True)
    """Accept KServe-v2 requests at /v2/models/MODEL/infer on `listen.tap`, and those to
    Triton's generate and generate_stream."""
    openai: bool = Field(default=True)
    """Accept OpenAI's requests at /v1/chat/completions and /v1/completions on
    `listen.tap`."""
    grpc: bool = Field(default=False)
    """Accept KServe-v2 requests as gRPC messages, ModelInfer and ModelStreamInfer, on
    `listen.tap.grpc_port`.
    """
    cloudevents: CloudEventsSettings | None = Field(default=CloudEventsSettings())
    """Accept requests and responses as CloudEvents on `listen.tap`; null accepts none.
    """
    samples_per_second: float = Field(default=20.0, gt=0, le=100_000)
    """Approximate number of requests, and of responses, read per second for each model.
    The others are counted and dropped before their bodies are read.
    """
    max_samples_per_second: float = Field(default=200.0, gt=0, le=100_000)
    """Approximate maximum over all models."""
    overrides: dict[str, SamplingSettings] = Field(default={}, max_length=10_000)
    """Rates that differ, by model name."""
    max_body_bytes: int = Field(default=2 << 20, ge=1024, le=32 << 20)
    """Maximum size of a body, also after decompression. A malicious body takes up to 32
    times as much memory while it is parsed; bodies are parsed one at a time."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models with rates of their own."""
        return literal_mentions("overrides", self.overrides)

    def build(self, access: Access) -> MirrorCollector:
        """The collector."""
        return MirrorCollector(self, access)


class MirrorCollector:
    """Provides the taps' routes, which publish requests to the hub."""

    def __init__(self, settings: MirrorSettings, access: Access) -> None:
        rates = Rates(
            settings.max_samples_per_second,
            settings.samples_per_second,
            {
                model: chosen.samples_per_second
                for model, chosen in settings.overrides.items()
            },
        )
        # Not for secrets: whoever can guess it can choose what is sampled, no more.
        rng = random.Random()  # noqa: S311
        self._intake = Intake(access, rates, rng)
        self._routes: list[TapRoute | MessageRoute] = []
        if settings.http:
            sink = InferSink(self._intake, max_body_bytes=settings.max_body_bytes)
            self._routes.append(sink.route())
        if settings.openai:
            completions = CompletionSink(
                self._intake, max_body_bytes=settings.max_body_bytes
            )
            self._routes.append(completions.route())
        if settings.cloudevents is not None:
            events = EventSink(
                self._intake,
                path=settings.cloudevents.path,
                models=settings.cloudevents.models,
                max_body_bytes=settings.max_body_bytes,
            )
            self._routes.append(events.route())
        if settings.grpc:
            messages = MessageSink(self._intake, max_body_bytes=settings.max_body_bytes)
            self._routes.append(messages.route())

    def routes(self) -> Sequence[TapRoute | MessageRoute]:
        """Return the routes that the tap serves."""
        return self._routes

    def collect(self) -> Sequence[AnySample]:
        """Return the counts of samples passed on so far."""
        return list(self._intake.samples())
