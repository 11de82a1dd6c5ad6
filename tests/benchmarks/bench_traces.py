"""The trace path: what one trace costs us."""

from __future__ import annotations

import gc
import mmap
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import figures

from exporter.features.traces import otlp_traces, trace_records
from exporter.features.traces.trace_sink import SinkSettings, TraceSink
from exporter.features.traces.trace_spans import SpanJoiner

if TYPE_CHECKING:
    from collections.abc import Callable

    from figures import Figure

TESTS = Path(__file__).parents[1]
FILES = sorted((TESTS / "data" / "traces" / "files").iterdir())
SPANS = TESTS / "data" / "traces" / "otlp" / "triton-2.51.json"
COPIES = 200


def _sink() -> TraceSink:
    return TraceSink(
        SinkSettings(300.0, 100, ("bench",), "test"),
        known=tuple,
        wanted=lambda _: True,
        decoupled=lambda _: False,
        wall_clock=time.time,
    )


def _large_file() -> bytes:
    """The recorded files so many times over, every copy with trace ids of its own."""
    recorded = b",".join(file.read_bytes().strip(b"[]\n") for file in FILES)
    copies = [
        re.sub(
            rb'"((?:parent_)?id)":([0-9]+)',
            lambda match, shift=1000 * copy: (
                b'"%s":%d' % (match[1], int(match[2]) + shift)
            ),
            recorded,
        )
        for copy in range(COPIES)
    ]
    return b"[" + b",".join(copies) + b"]"


def _per_trace(run: Callable[[], int], repetitions: int) -> list[float]:
    """CPU microseconds for each trace, of so many runs."""
    found = []
    for _ in range(repetitions):
        started = time.process_time()
        traces = run()
        found.append((time.process_time() - started) / traces * 1e6)
    return found


def _cost(name: str, found: list[float], goal_per_second: float, what: str) -> Figure:
    return figures.at_most(
        name,
        unit="microseconds",
        goal=1e6 / goal_per_second,
        n=len(found),
        traces_per_second=1e6 / figures.median(found)["value"],
        measured=f"CPU time of one core for each trace, from {what} to histograms;"
        f" the goal is {goal_per_second:g} traces a second",
        **figures.median(found),
    )


def files(*, quick: bool = False) -> Figure:
    """Trace files to histograms."""
    data = _large_file()

    def run() -> int:
        parsed = trace_records.parse(data)
        _sink().add("bench", parsed.traces, 0.0)
        return len(parsed.traces)

    run()
    found = _per_trace(run, 3 if quick else 15)
    return _cost("traces_from_files", found, 20_000, "bytes of trace files")


def spans(*, quick: bool = False) -> Figure:
    """OTLP JSON to histograms."""
    body = SPANS.read_bytes()

    def run() -> int:
        sink = _sink()
        count = 0
        for _ in range(20):
            joined = SpanJoiner().add(otlp_traces.from_json(body).spans, 0.0)
            sink.add("bench", joined.traces, 0.0)
            count += len(joined.traces)
        return count

    run()
    found = _per_trace(run, 3 if quick else 15)
    return _cost("traces_from_otlp_json", found, 10_000, "OTLP JSON bodies")


def _resident_bytes() -> int:
    gc.collect()
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * mmap.PAGESIZE


def memory(*, quick: bool = False) -> Figure:
    """How the resident memory grows over the second half of a long run."""
    rounds = 200 if quick else 3000
    body = SPANS.read_text("utf-8")
    sink, joiner = _sink(), SpanJoiner()
    half = 0
    for number in range(rounds):
        # Other times and ids each round, so that nothing counts as a copy.
        fresh = body.replace('"17952', f'"{17952 + number}')
        fresh = re.sub('(Id":")[0-9a-f]{3}', rf"\g<1>{number % 4096:03x}", fresh)
        found = otlp_traces.from_json(fresh.encode())
        sink.add("bench", joiner.add(found.spans, float(number)).traces, float(number))
        if number == rounds // 2:
            half = _resident_bytes()
    return figures.at_most(
        "traces_memory_growth",
        (_resident_bytes() - half) / 2**20,
        "mebibytes",
        1.0,
        n=sink.counted("bench", "request"),
        measured="rise of the resident memory over the second half of a run that"
        " never sees the same trace twice",
    )
