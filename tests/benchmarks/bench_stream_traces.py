"""Traces of streamed answers: what a response costs us, and how true its times are."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
from sidecar_process import COMMAND, require_triton
from streaming_models import write_streaming_models
from traced_tritons import files_of_five, traced

from exporter.features.traces import otlp_traces, trace_records
from exporter.features.traces.trace_sink import SinkSettings, TraceSink
from exporter.features.traces.trace_spans import SpanJoiner
from loadtests import result_file
from loadtests.result import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure

    from loadtests.result import RunResult

    Quantiles = dict[str, dict[float, float]]

_DATA = Path(__file__).parents[1] / "data" / "traces"
_FILE = _DATA / "streamed_files" / "t.json.0"
_SPANS = _DATA / "streamed_otlp" / "triton-2.51.0.json"
_ANSWERS, _RESPONSES = 50, 200
_GAP_NS = 20_000_000
_GOAL_PER_SECOND = 10_000

_SLEEPS = (100, *[20] * 19)
_SECONDS = 6
_USERS = (2, 8, 32)
_QUANTILES = (("p50", 0.5), ("p99", 0.99))
_Q = tuple(q for _, q in _QUANTILES)


def _sink() -> TraceSink:
    return TraceSink(
        SinkSettings(300.0, 100, ("bench",), "test"),
        known=tuple,
        wanted=lambda _: True,
        decoupled=lambda _: False,
        wall_clock=time.time,
    )


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
    _sink().add("bench", traces, 0.0)
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


def truth(*, quick: bool = False) -> Iterator[Figure]:
    """The real Triton's marks beside the client's own stamps, at three loads."""
    require_triton()
    for users in _USERS:
        runs = [_both(users) for _ in range(1 if quick else 3)]
        for what in ("first", "gap"):
            for name, q in _QUANTILES:
                pairs = [(ours[what][q], marks[what][q]) for ours, marks in runs]
                client = float(np.median([ours for ours, _ in pairs]))
                errors = [1e3 * abs(ours - marks) for ours, marks in pairs]
                yield figures.at_most(
                    f"stream_traces_{users}_users_{what}_{name}_error",
                    unit="ms",
                    goal=round(max(1.0, 30 * client), 3),
                    n=len(runs),
                    client=1e3 * client,
                    measured=f"|client - traces| of the {name} of the "
                    f"{'first response' if what == 'first' else 'gaps'}; {users} users at "
                    f"once for {_SECONDS} s, answers of {len(_SLEEPS)} responses over "
                    "gRPC; the goal is 3 % or 1 ms",
                    **figures.median(errors),
                )


def _both(users: int) -> tuple[Quantiles, Quantiles]:
    """Times to the first response and gaps, as a load run and as traces have them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository, path = folder / "models", folder / "trace.json"
        repository.mkdir()
        write_streaming_models(repository)
        with traced(repository, *files_of_five(path)) as triton:
            result = _load(triton.grpc, users, folder)
        marks = [
            trace.responses
            for file in sorted(folder.glob("trace.json*"))
            for trace in trace_records.parse(file.read_bytes()).traces
            if trace.responses
        ]
    requests = result.requests
    assert requests.count(Outcome.OK) == len(requests), result.errors
    # The sender asks once before it begins; a file of five may be missing its end.
    assert abs(len(marks) - len(requests)) < 6, (len(marks), len(requests))
    gaps = result.between_responses
    ours = {
        "first": {q: float(np.quantile(requests.first - requests.sent, q)) for q in _Q},
        "gap": {q: float(gaps.quantile(q) or 0.0) for q in _Q},
    }
    found = {
        "first": [sent.first_seconds for sent in marks],
        "gap": [gap for sent in marks for gap in sent.gaps],
    }
    return ours, {
        name: {q: float(np.quantile(times, q)) for q in _Q}
        for name, times in found.items()
    }


def _load(address: str, users: int, folder: Path) -> RunResult:
    data, path = folder / "data.npz", folder / "run.json"
    np.savez(data, sleeps=np.array([_SLEEPS], np.float32))
    command = [COMMAND, "load", "run", "--quiet", "--protocol", "grpc"]
    command += ["--address", address, "--model", "scripted", "--data", str(data)]
    command += ["--concurrency", str(users), "--duration", str(_SECONDS)]
    done = subprocess.run(
        [*command, "--json", str(path)], check=False, capture_output=True, text=True
    )
    if not path.exists():
        raise RuntimeError(f"the load run has no result: {done.stderr[-2000:]}")
    return result_file.read(path)
