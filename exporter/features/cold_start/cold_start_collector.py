"""Cold starts, seen from outside: a model that goes and comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import structlog
from pydantic import Field

from exporter import catalogue, errors
from exporter.access.collector_base import Access, CollectorSettings
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import InputSettings, make_payload
from exporter.own_requests.reach import own_inference
from exporter.samples import Sample
from exporter.settings import ModelMention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.triton.protocol_types import IndexEntry, ModelSpec

log = structlog.get_logger()


class ColdStartSettings(CollectorSettings):
    """Polls the repository often enough to see a model load, and sends its first request."""

    kind: Literal["cold_start"] = "cold_start"
    interval_seconds: float = Field(default=0.25, gt=0.05, le=3600)
    """Time between two polls. It is the resolution of load times."""
    timeout_seconds: float = Field(default=1.5, gt=0, le=60)
    """Timeout of one request. A first inference that takes longer is not measured; for
    slow models raise this and `deadline_seconds`, which limits the poll and the inference
    together.
    """
    ask: bool = Field(default=True)
    """Send one inference to a model as soon as it is ready, to measure the duration of
    the first one.
    """
    overrides: dict[str, dict[str, InputSettings]] = Field(
        default={}, max_length=10_000
    )
    """Content of the request, by model and input."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models with content of their own."""
        for model, inputs in self.overrides.items():
            place = f"overrides.{model}"
            yield ModelMention(
                place, model, inputs=frozenset(inputs), inputs_place=place
            )

    def build(self, access: Access) -> ColdStartCollector:
        """The collector."""
        return ColdStartCollector(self, access)


@dataclass(slots=True)
class _Start:
    """The latest load of one model version. Times are monotonic seconds."""

    began: float | None = None
    load_seconds: float | None = None
    cold_seconds: float | None = None
    probed: bool = True

    @property
    def first_seconds(self) -> float | None:
        """Time to the first answer, without the time in which other models were asked."""
        if self.load_seconds is None or self.cold_seconds is None:
            return None
        return self.load_seconds + self.cold_seconds


class ColdStartCollector:
    """Follows each model version's state from poll to poll."""

    def __init__(self, settings: ColdStartSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._starts: dict[ModelKey, _Start] = {}
        self._ready: set[ModelKey] | None = None
        self._was_unreachable = False
        """Return True if the server may have restarted since the last poll."""
        self._rng = np.random.default_rng()

    def collect(self) -> Sequence[Sample]:
        """Poll once; send a request to models that have just become ready.

        Raises:
            TritonError: the server does not list its models.
        """
        index = [e for e in self._index() if self._access.models.matches(e.name)]
        self._forget_restarted()
        self._follow(index, self._access.clock())
        self._send_one()
        return list(self._samples())

    def _index(self) -> Sequence[IndexEntry]:
        timeout = self._settings.timeout_seconds
        try:
            return self._access.grpc.repository_index(timeout_seconds=timeout)
        except errors.UnavailableError:
            # Before the first poll there are no loads to forget.
            self._was_unreachable = self._ready is not None
            raise

    def _forget_restarted(self) -> None:
        """Forget the loads that a restart made obsolete.

        A connection also ends without a restart. A model of which the statistics have no
        request was loaded after the one that we sent; when that began is unknown, but
        its next inference is as cold.
        """
        if not self._was_unreachable or self._ready is None:
            return
        read = self._access.grpc.statistics(
            timeout_seconds=self._settings.timeout_seconds
        )
        self._was_unreachable = False
        for key in {e.key for e in read if not e.success.count + e.fail.count}:
            start = self._starts.get(key)
            if start is None or start.cold_seconds is not None:
                self._ready.discard(key)
                self._starts.pop(key, None)

    def _follow(self, index: Sequence[IndexEntry], now: float) -> None:
        listed = {entry.key for entry in index}
        ready = {e.key for e in index if e.ready}
        # A model that was never loaded is listed without a version while it loads.
        loading = {e.name for e in index if e.state == "LOADING"}
        for name in loading:
            for key in {k for k in listed if k[0] == name} - ready:
                start = self._starts.setdefault(key, _Start())
                if start.began is None or start.load_seconds is not None:
                    self._starts[key] = _Start(began=now)
        for key in ready - (ready if self._ready is None else self._ready):
            self._came(key, now)
        for key in self._starts.keys() - listed:
            # Versions get their name only when they are there.
            if key[1] or key[0] not in {name for name, _ in listed}:
                del self._starts[key]
        # Their load failed, or they were unloaded: another load begins later.
        ended = {e.name for e in index if e.state == "UNAVAILABLE"} - loading
        for key in self._starts.keys() - ready:
            if key[0] in ended:
                del self._starts[key]
        self._ready = ready

    def _came(self, key: ModelKey, now: float) -> None:
        start = self._starts.get(key) or self._starts.pop((key[0], ""), None)
        if start is None or start.began is None or start.load_seconds is not None:
            start = _Start()  # no poll saw this load begin
        else:
            start.load_seconds = now - start.began
        start.probed = not self._settings.ask
        self._starts[key] = start

    def _send_one(self) -> None:
        """Send one request at a time, so that a model that hangs delays at most one poll."""
        for key, start in self._starts.items():
            if start.probed or key not in (self._ready or ()):
                continue
            start.probed = True
            try:
                spec = self._access.grpc.model_spec(
                    *key, timeout_seconds=self._settings.timeout_seconds
                )
                start.cold_seconds = self._infer(spec)
            except errors.TritonError as error:
                name, version = key
                log.warning(
                    "cold_start_unanswered",
                    model=name,
                    version=version,
                    reason=str(error),
                )
            return

    def _infer(self, spec: ModelSpec) -> float:
        own, grpc = self._access.own, self._access.grpc
        payload = make_payload(
            spec, self._settings.overrides.get(spec.name, {}), self._rng
        )
        request = own_request(spec, own.new_request_id("cold-start"), payload.inputs)
        send = grpc.infer_stream if spec.decoupled else grpc.infer
        with own_inference(self._access, spec, request) as sent:
            reply = send(request, timeout_seconds=self._settings.timeout_seconds)
            sent.reply = reply
        return reply.duration_seconds

    def _samples(self) -> Sequence[Sample]:
        return [
            Sample(spec, value, key)
            for key, start in self._starts.items()
            if key in (self._ready or ())
            for spec, value in (
                (catalogue.MODEL_LOAD, start.load_seconds),
                (catalogue.MODEL_FIRST_INFERENCE, start.first_seconds),
                (catalogue.COLD_INFERENCE, start.cold_seconds),
            )
            if value is not None
        ]
