"""Production latency from traces, held against another observer of the same requests."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from perf_analyzer import VERSION, PerfAnalyzer
from processes import MODEL, MODELS, require_triton

from exporter.traces import records
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from figures import Figure
    from perf_analyzer import Run

    from exporter.traces.model import RequestTrace

# Tracing every request of thousands a second kills this Triton (server#7795).
PER_SECOND = 200.0
ROUNDS = 9
GOAL = 0.05
_COMPUTE = slice(1, 5)


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
    inside = [statistics.fmean(map(_inside, traces)) for traces in traced]
    yield _difference(
        "truth_server_mean",
        inside,
        [run.server_seconds for run in runs],
        "mean of queue and compute from traces against perf_analyzer's server-side mean"
        f" (from Triton's statistics); {setup}",
    )
    p50 = [statistics.median(map(_inside, traces)) for traces in traced]
    yield _difference(
        "truth_client_p50",
        [median + run.outside_seconds for median, run in zip(p50, runs, strict=True)],
        [run.p50_seconds for run in runs],
        "p50 of queue and compute from traces, plus what perf_analyzer finds outside of"
        f" them (its client and the network), against its client p50; {setup}",
    )
    yield figures.at_most(
        "truth_network_inside",
        unit="microseconds",
        goal=None,
        n=len(traced),
        measured="p50 of the trace's total less queue and compute: the network's part"
        f" that the server sees, of perf_analyzer's outside; {setup}",
        outside=figures.median([run.outside_seconds * 1e6 for run in runs])["value"],
        **figures.median(
            [
                1e6 * statistics.median(t.total_seconds - _inside(t) for t in traces)
                for traces in traced
            ]
        ),
    )


def _inside(trace: RequestTrace) -> float:
    return sum(seconds or 0.0 for seconds in trace.phases[_COMPUTE])


def _once(analyzer: PerfAnalyzer) -> tuple[Run, list[RequestTrace]]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder) / "t.json"
        options = ("level=TIMESTAMPS", "rate=1", f"triton,file={file}")
        arguments = [part for option in options for part in ("--trace-config", option)]
        with EmbeddedTriton(MODELS, arguments=arguments) as triton:
            run = analyzer.paced(MODEL, triton.grpc, PER_SECOND)
        parsed = records.parse(file.read_bytes())
    traces = [t for t in parsed.traces if t.model == MODEL and t.total_seconds]
    if len(traces) < PER_SECOND:
        raise RuntimeError(f"found {len(traces)} traces; the server wrote too few")
    return run, traces


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
