"""Traces of streamed answers: processor time of one response."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
from trace_sinks import sink

from exporter.features.traces import otlp_traces, trace_records
from exporter.features.traces.trace_spans import SpanJoiner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure


_DATA = Path(__file__).parents[1] / "data" / "traces"
_FILE = _DATA / "streamed_files" / "t.json.0"
_SPANS = _DATA / "streamed_otlp" / "triton-2.51.0.json"
_ANSWERS, _RESPONSES = 50, 200
_GAP_NS = 20_000_000
_GOAL_PER_SECOND = 10_000


def cost(*, quick: bool = False) -> Iterator[Figure]:
    """Processor time of one response, from bytes to histograms, by both sources."""
    file, body = _file(), _body()

    def files() -> int:
        return _taken(trace_records.parse(file).traces)

    def spans() -> int:
        joined = SpanJoiner().add(otlp_traces.from_json(body).spans, 0.0)
        return _taken(joined.traces)

    for name, run in (("files", files), ("otlp_json", spans)):
        found = _per_response(run, 3 if quick else 15)
        yield figures.at_most(
            f"stream_traces_{name}_response",
            unit="microseconds",
            goal=1e6 / _GOAL_PER_SECOND,
            n=len(found),
            responses_per_second=1e6 / figures.median(found)["value"],
            measured=f"CPU time of one core for each response of answers of {_RESPONSES} "
            f"responses, from bytes to histograms; the goal is {_GOAL_PER_SECOND:,} "
            "responses a second",
            **figures.median(found),
        )


def _per_response(run: Callable[[], int], repetitions: int) -> list[float]:
    assert run() == _ANSWERS * _RESPONSES
    found = []
    for _ in range(repetitions):
        started = time.process_time()
        responses = run()
        found.append((time.process_time() - started) / responses * 1e6)
    return found


def _taken(traces: Any) -> int:
    traces = list(traces)
    sink(known=(), unknown_models=100).add("file", traces, 0.0)
    return sum(trace.responses.number for trace in traces if trace.responses)


def _sends(first_ns: int, key: str) -> list[dict[str, Any]]:
    """Marks of so many responses, `key` being the name of their time."""
    return [
        {"name": f"GRPC_SEND_{end}", key: first_ns + number * _GAP_NS + late}
        for number in range(_RESPONSES)
        for end, late in (("START", 0), ("END", 50_000))
    ]


def _file() -> bytes:
    """A file of many streamed answers, made from a recorded one."""
    recorded = json.loads(_FILE.read_text("utf-8"))
    first = recorded[0]["id"]
    one = [entry for entry in recorded if entry["id"] == first]
    marks = [e for e in one if "SEND" not in str(e.get("timestamps"))]
    (begin,) = (
        entry["timestamps"][0]["ns"]
        for entry in one
        if str(entry.get("timestamps")).startswith("[{'name': 'GRPC_WAITREAD_END")
    )
    sends = [{"id": 0, "timestamps": [mark]} for mark in _sends(begin + 10**8, "ns")]
    return json.dumps(
        [
            {**entry, "id": number}
            for number in range(1, _ANSWERS + 1)
            for entry in (*marks, *sends)
        ],
        separators=(",", ":"),
    ).encode()


def _body() -> bytes:
    """The same as spans."""
    recorded = json.loads(_SPANS.read_text("utf-8"))
    scope = recorded["resourceSpans"][0]["scopeSpans"][0]
    root = next(
        span
        for span in scope["spans"]
        if any(event["name"] == "GRPC_SEND_START" for event in span.get("events", ()))
    )
    events = [e for e in root["events"] if "SEND" not in e["name"]]
    begin = int(events[1]["timeUnixNano"])
    sends = [
        {**mark, "timeUnixNano": str(mark["timeUnixNano"])}
        for mark in _sends(begin + 10**8, "timeUnixNano")
    ]
    long_root = {**root, "events": events + sends}
    long_root["endTimeUnixNano"] = sends[-1]["timeUnixNano"]
    family = [s for s in scope["spans"] if s["traceId"] == root["traceId"]]
    spans = [
        {**(long_root if span is root else span), "traceId": f"{number:032x}"}
        for number in range(1, _ANSWERS + 1)
        for span in family
    ]
    return json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, separators=(",", ":")
    ).encode()
