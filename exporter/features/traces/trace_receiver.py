"""POST /v1/traces: bodies of the tap to traces in the sink."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog

from exporter.errors import TraceBodyError
from exporter.features.traces import otlp_traces
from exporter.features.traces.trace_spans import SpanJoiner
from exporter.taps.tap_route import TapAnswer, TapRoute, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.access.inventory import ModelKey
    from exporter.features.traces.trace_sink import TraceSink
    from exporter.features.traces.trace_spans import Joined
    from exporter.taps.tap_route import TapRequest

log = structlog.get_logger()

SOURCE: Final = "otlp"
PATH: Final = "/v1/traces"
_ANSWER_SECONDS: Final = 8.0
"""An exporter sends from a thread that no request waits for, and by OpenTelemetry's
default gives up after 10 s: so it can wait for the verdict on its body."""
_WARN_SECONDS: Final = 60.0
"""Time between two warnings of bodies that are too large."""
_ACCEPTED: Final = {
    # An empty ExportTraceServiceResponse in either encoding: full success.
    otlp_traces.JSON_TYPE: TapAnswer(
        "accepted", body=b"{}", headers={"content-type": otlp_traces.JSON_TYPE}
    ),
    otlp_traces.PROTOBUF_TYPE: TapAnswer(
        "accepted", headers={"content-type": otlp_traces.PROTOBUF_TYPE}
    ),
}
_READERS: Final = {
    otlp_traces.JSON_TYPE: otlp_traces.from_json,
    otlp_traces.PROTOBUF_TYPE: otlp_traces.from_protobuf,
}


class TraceReceiver:
    """Reads, joins and counts."""

    def __init__(
        self,
        sink: TraceSink,
        *,
        max_body_bytes: int,
        clock: Callable[[], float],
        is_ensemble: Callable[[ModelKey], bool],
    ) -> None:
        self._sink = sink
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._joiner = SpanJoiner(is_known=sink.is_known, is_ensemble=is_ensemble)
        self._lock = threading.Lock()
        self._warned_at: float | None = None

    def route(self) -> TapRoute:
        """Return the tap's route for it."""
        return TapRoute(
            PATH,
            SOURCE,
            self._max_body_bytes,
            self.answer,
            _ACCEPTED[otlp_traces.JSON_TYPE],
            answer_seconds=_ANSWER_SECONDS,
            too_large=self._warn,
        )

    def answer(self, request: TapRequest) -> TapAnswer:
        """Count the traces of one body; an invalid body gets status 400."""
        read = _READERS.get(request.media_type)
        if read is None:
            return refusal(
                "unsupported",
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"found content-type {request.media_type[:80]!r}; "
                f"want {' or '.join(_READERS)}",
            )
        try:
            found = read(request.body, self._max_body_bytes)
        except TraceBodyError as error:
            return refusal("malformed", HTTPStatus.BAD_REQUEST, str(error))
        now = self._clock()
        with self._lock:
            joined = self._joiner.add(found.spans, now, request.sender)
        self._count(joined, now)
        self._sink.count(SOURCE, "foreign", found.foreign)
        return _ACCEPTED[request.media_type]

    def expire(self) -> None:
        """Give up on overdue requests."""
        now = self._clock()
        with self._lock:
            joined = self._joiner.expire(now)
        self._count(joined, now)

    def _warn(self) -> None:
        now = self._clock()
        if self._warned_at is not None and now - self._warned_at < _WARN_SECONDS:
            return
        self._warned_at = now
        log.warning(
            "trace_body_too_large",
            most_bytes=self._max_body_bytes,
            lost="every span of the batch",
            advice="start Triton with --trace-config "
            "opentelemetry,bsp_max_export_batch_size=N, N smaller than now (512 without "
            "it), or raise otlp.max_body_bytes of the collector `traces`",
        )

    def _count(self, joined: Joined, now: float) -> None:
        self._sink.add(SOURCE, joined.traces, now)
        self._sink.count(SOURCE, "invalid", joined.invalid)
        self._sink.count(SOURCE, "orphan", joined.orphans)
