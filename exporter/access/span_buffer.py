"""Spans of our own requests, kept until they are exported. Knows nothing of OpenTelemetry.

A probe that sends its context as W3C traceparent becomes the root of a trace that Triton
continues, when Triton's tracing runs in OpenTelemetry mode.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

MAX_SPANS: Final = 2048


@dataclass(frozen=True, slots=True)
class SpanContext:
    """The ids of a span that has begun."""

    trace_id: int
    span_id: int
    started_ns: int

    @property
    def traceparent(self) -> str:
        """The W3C header: version 00, sampled."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has ended. Times are nanoseconds since the epoch."""

    context: SpanContext
    name: str
    ended_ns: int
    ok: bool
    attributes: Mapping[str, str | float] = field(default_factory=dict)


class SpanBuffer:
    """The latest spans, at most `MAX_SPANS`; older ones are dropped and counted."""

    def __init__(self, wall_clock_ns: Callable[[], int], rng: random.Random) -> None:
        self._wall_clock_ns = wall_clock_ns
        self._rng = rng
        self._lock = threading.Lock()
        self._spans: deque[Span] = deque(maxlen=MAX_SPANS)
        self.dropped = 0
        self.wanted = False
        """True if spans are exported; without an exporter no span is started."""

    def begin(self) -> SpanContext | None:
        """A root span that begins now, if spans are wanted."""
        if not self.wanted:
            return None
        with self._lock:
            # All zeros is the invalid id of the W3C recommendation.
            trace_id = self._rng.getrandbits(128) or 1
            span_id = self._rng.getrandbits(64) or 1
        return SpanContext(trace_id, span_id, self._wall_clock_ns())

    def end(
        self,
        context: SpanContext,
        name: str,
        *,
        ok: bool,
        attributes: Mapping[str, str | float],
    ) -> None:
        """Keep the span, which ends now."""
        span = Span(context, name, self._wall_clock_ns(), ok, attributes)
        with self._lock:
            self.dropped += len(self._spans) == MAX_SPANS
            self._spans.append(span)

    def drain(self) -> list[Span]:
        """Return and remove all spans."""
        with self._lock:
            spans = list(self._spans)
            self._spans.clear()
        return spans
