"""Fuzz targets of traces: each target takes any bytes and states what must always hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from exporter import catalogue
from exporter.errors import TraceBodyError
from exporter.features.traces import otlp_traces, trace_records
from exporter.features.traces.trace_sink import SinkSettings, TraceSink
from exporter.features.traces.trace_spans import SpanJoiner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.features.traces.traced_request import RequestTrace

MAX_WAITING = 50
UNKNOWN_MODELS = 5


def check(traces: Iterable[RequestTrace]) -> None:
    """Every trace is sane, and the sink takes it."""
    traces = list(traces)
    for trace in traces:
        times = [t for t in (trace.total_seconds, *trace.phases) if t is not None]
        assert all(math.isfinite(t) and 0 <= t <= 86_400 for t in times)
        if trace.total_seconds is not None:
            inside = sum(t for t in trace.phases if t is not None)
            assert inside <= trace.total_seconds + 1e-6
        if trace.responses is not None:
            sent = trace.responses
            assert sent.number == len(sent.gaps) + 1
            times = [sent.first_seconds, *sent.gaps]
            assert all(0 <= t <= 86_400 for t in times)
            assert trace.total_seconds is not None
            assert sum(times) <= trace.total_seconds + 1e-6
        trace.model.encode()
        assert len(trace.model) <= 1024
        assert len(trace.request_id) <= 1024
    sink = TraceSink(
        SinkSettings(60.0, UNKNOWN_MODELS, ("fuzz",), "test"),
        known=tuple,
        wanted=lambda _: True,
        decoupled=lambda _: False,
        wall_clock=lambda: 0.0,
    )
    sink.add("fuzz", traces, 0.0)
    samples = sink.samples(0.0)
    models = {sample.labels[0] for sample in samples}
    assert len(models) <= UNKNOWN_MODELS + 1
    counted = [s.value for s in samples if s.spec is catalogue.TRACE_RECORDS]
    assert sum(counted) == len(traces)


def fuzz_records(data: bytes) -> None:
    trace_records.is_complete(data)
    parsed = trace_records.parse(data)
    assert parsed.malformed >= 0
    assert len(parsed.traces) + parsed.invalid <= data.count(b'{"id":')
    check(parsed.traces)


def _fuzz_body(read: Callable[[bytes], otlp_traces.Spans], data: bytes) -> None:
    try:
        found = read(data)
    except TraceBodyError:
        return
    joiner = SpanJoiner(max_bytes=MAX_WAITING * 1000)
    joined = joiner.add(found.spans, 0.0)
    assert joiner.waiting <= 2 * MAX_WAITING
    late = joiner.expire(1e9)
    assert joiner.waiting == 0
    check([*joined.traces, *late.traces])


def fuzz_otlp_json(data: bytes) -> None:
    _fuzz_body(otlp_traces.from_json, data)


def fuzz_otlp_protobuf(data: bytes) -> None:
    _fuzz_body(otlp_traces.from_protobuf, data)


TARGETS = {
    "records": fuzz_records,
    "otlp_json": fuzz_otlp_json,
    "otlp_protobuf": fuzz_otlp_protobuf,
}
