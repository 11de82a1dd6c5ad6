"""POST /v1/traces: bodies of the tap to traces in the sink, and on to a collector."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import urllib3

from exporter import catalogue
from exporter.errors import TraceBodyError
from exporter.features.traces import otlp_traces
from exporter.features.traces.trace_spans import SpanJoiner
from exporter.samples import Sample
from exporter.taps.tap_route import TapAnswer, TapRoute, refusal
from exporter.triton.patience import pool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.features.traces.trace_sink import TraceSink
    from exporter.features.traces.trace_spans import Joined
    from exporter.taps.tap_route import TapRequest

MAX_QUEUED_BYTES: Final = 16 << 20
TIMEOUT_SECONDS: Final = 5.0
ENTRY_BYTES: Final = 1_000
"""Counted for each queued body in addition to its own bytes and those of its headers."""
_FORWARDED: Final = "otlp_forward"
_PASSED_HEADERS: Final = ("content-type", "content-encoding")
_OK: Final = range(200, 300)


class _Queued(NamedTuple):
    body: bytes
    headers: dict[str, str]
    size: int


class Forwarder:
    """Passes bodies on to an OpenTelemetry collector: one thread that posts to one URL.

    If the collector is slow or down, bodies that do not fit into the queue are dropped
    and counted; nothing waits, and nothing is sent twice.
    """

    def __init__(
        self,
        url: str,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._url = url
        self._max_queued_bytes = max_queued_bytes
        self._timeout = urllib3.Timeout(total=timeout_seconds)
        self._pool = pool_of(1, None)
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._outcomes: Counter[str] = Counter(forwarded=0, failed=0, dropped=0)
        threading.Thread(target=self._work, name="otlp-forward", daemon=True).start()

    def offer(self, request: TapRequest) -> None:
        """Queue a body, as it was sent; never waits."""
        headers = {
            name: request.headers[name]
            for name in _PASSED_HEADERS
            if name in request.headers
        }
        size = ENTRY_BYTES + len(request.raw) + sum(map(len, headers.values()))
        with self._lock:
            if self._queued_bytes + size > self._max_queued_bytes:
                self._outcomes["dropped"] += 1
                return
            self._queued_bytes += size
        # Without the request's inflated body, which may be a thousand times as long.
        self._queue.put(_Queued(request.raw, headers, size))

    def close(self) -> None:
        """End after the body that is being sent; the others are dropped."""
        with self._lock:
            self._max_queued_bytes = 0
        self._queue.put(None)

    def samples(self) -> Iterator[Sample]:
        """Yield the number of bodies by outcome."""
        with self._lock:
            outcomes = dict(self._outcomes)
        for outcome, number in outcomes.items():
            yield Sample(catalogue.TAP_REQUESTS, number, (_FORWARDED, outcome))

    def _work(self) -> None:
        while (queued := self._queue.get()) is not None:
            outcome = "forwarded" if self._sent(queued) else "failed"
            with self._lock:
                self._queued_bytes -= queued.size
                self._outcomes[outcome] += 1
                if not self._max_queued_bytes:
                    return

    def _sent(self, queued: _Queued) -> bool:
        try:
            answer = self._pool.request(
                "POST",
                self._url,
                body=queued.body,
                headers=queued.headers,
                timeout=self._timeout,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError):
            return False
        return answer.status in _OK


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
    """Reads, joins and counts; hands the bytes on where a forwarder is given."""

    def __init__(
        self,
        sink: TraceSink,
        *,
        max_body_bytes: int,
        clock: Callable[[], float],
        forwarder: Forwarder | None = None,
    ) -> None:
        self._sink = sink
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._forwarder = forwarder
        self._joiner = SpanJoiner(is_known=sink.is_known)
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
        if self._forwarder is not None:
            self._forwarder.offer(request)
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
