"""Production latency from traces, held against another observer of the same requests."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from perf_analyzer import VERSION, PerfAnalyzer
from processes import MODEL, MODELS, require_triton

from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from figures import Figure
    from perf_analyzer import Run

# Each traced request is a risk to this Triton (server#7795), so that they are few.
PER_SECOND = 200.0
ROUNDS = 9
GOAL = 0.05
Marks = dict[str, int]
"""Nanoseconds by the name of the mark, of one request."""


def explained(*, quick: bool = False) -> Iterator[Figure]:
    """What perf_analyzer says of its requests, told from the server's traces of them."""
    require_triton()
    analyzer = PerfAnalyzer()
    runs, traced = [], []
    for _ in range(2 if quick else ROUNDS):
        run, traces = _once(analyzer)
        runs.append(run)
        traced.append(traces)
    setup = (
        f"perf_analyzer sends {PER_SECOND:g} requests a second to {MODEL}, every one"
        " traced; median of n runs, each with a server of its own"
    )
    yield _difference(
        "truth_server_mean",
        [statistics.fmean(map(_inside, traces)) for traces in traced],
        [run.server_seconds for run in runs],
        "mean of QUEUE_START to COMPUTE_END in the traces against perf_analyzer's"
        f" server-side mean (from Triton's statistics); {setup}",
    )
    p50 = [statistics.median(map(_inside, traces)) for traces in traced]
    yield _difference(
        "truth_client_p50",
        [median + run.outside_seconds for median, run in zip(p50, runs, strict=True)],
        [run.p50_seconds for run in runs],
        "p50 of that, plus what perf_analyzer finds outside of it (its client and the"
        f" network), against its client p50; {setup}",
    )
    yield figures.at_most(
        "truth_sending_in_compute",
        unit="share",
        goal=None,
        n=len(traced),
        measured="of the time that Triton's statistics call compute: what passes after"
        " the answer was handed over for sending, which triton_request_phase_duration_"
        f"seconds counts as network_out; {setup}",
        **figures.median(
            [
                statistics.fmean(map(_sending, traces))
                / statistics.fmean(map(_inside, traces))
                for traces in traced
            ]
        ),
    )


def _inside(marks: Marks) -> float:
    """Seconds that Triton's statistics account for."""
    return (marks["COMPUTE_END"] - marks["QUEUE_START"]) / 1e9


def _sending(marks: Marks) -> float:
    """Seconds of it in which the answer is on its way already."""
    return max(0, marks["COMPUTE_END"] - marks["GRPC_SEND_START"]) / 1e9


def _once(analyzer: PerfAnalyzer) -> tuple[Run, list[Marks]]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "t.json"
        options = ("level=TIMESTAMPS", "rate=1", f"triton,file={file}")
        arguments = [part for option in options for part in ("--trace-config", option)]
        with EmbeddedTriton(MODELS, arguments=arguments) as triton:
            run = analyzer.paced(MODEL, triton.grpc, PER_SECOND)
        traces = _read(file)
    if len(traces) < PER_SECOND:
        raise RuntimeError(f"found {len(traces)} traces; the server wrote too few")
    return run, traces


def _read(file: Path) -> list[Marks]:
    """The answered requests to MODEL, by a JSON parser and not by ours."""
    asked: set[int] = set()
    marks: dict[int, Marks] = {}
    for record in json.loads(file.read_bytes()):
        if record.get("model_name") == MODEL:
            asked.add(record["id"])
        for mark in record.get("timestamps", ()):
            marks.setdefault(record["id"], {})[mark["name"]] = mark["ns"]
    return [marks[key] for key in sorted(asked) if "GRPC_SEND_END" in marks[key]]


def _difference(
    name: str, ours: Sequence[float], theirs: Sequence[float], measured: str
) -> Figure:
    ratio = figures.median_ratio(ours, theirs)
    return figures.at_most(
        name,
        abs(ratio["value"] - 1),
        "ratio",
        GOAL,
        n=len(ours),
        ratio=ratio["value"],
        ci_low=ratio["ci_low"] - 1,
        ci_high=ratio["ci_high"] - 1,
        peer=figures.median([value * 1e6 for value in theirs])["value"],
        peer_name=f"microseconds by perf_analyzer {VERSION}",
        seed=figures.SEED,
        measured=measured,
    )
