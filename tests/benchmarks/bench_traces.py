"""The trace path: what one trace costs us, and what tracing costs the server."""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import trace_deaths
from processes import require_triton, sidecar, triton_settings

from exporter.traces import otlp, records
from exporter.traces.sink import SinkSettings, TraceSink
from exporter.traces.spans import SpanJoiner
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from figures import Figure

TESTS = Path(__file__).parents[1]
FILES = sorted((TESTS / "data" / "traces" / "files").iterdir())
SPANS = TESTS / "data" / "traces" / "otlp" / "triton-2.51.json"
MODELS = TESTS / "data" / "models"
_LOAD = Path(__file__).with_name("timed_load.py")
COPIES = 200
MODEL = "double"
USERS = 4
WINDOW_SECONDS = 0.5
SETTLE_SECONDS = 0.1
PAIRS = 60
# Where there is a goal of 1 %, which fewer windows of a machine like this cannot tell.
DECIDING_PAIRS = 600
# Each traced request is a risk to this Triton (server#7795): see `deaths`.
LOW_REQUESTS_PER_SECOND = 150.0
DEATHS_PER = 10_000
RATES = (1000, 100, 10)
DECIDED_RATE = 100


def _sink() -> TraceSink:
    return TraceSink(
        SinkSettings(300.0, 100, ("bench",)),
        known=tuple,
        wanted=lambda _: True,
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
        parsed = records.parse(data)
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
            joined = SpanJoiner().add(otlp.from_json(body).spans, 0.0)
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
        found = otlp.from_json(fresh.encode())
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


class _Load:
    """timed_load.py beside the server."""

    def __init__(self, grpc: str, rate: float = 0.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_LOAD), grpc, MODEL, str(USERS), str(rate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, seconds: float) -> dict[str, float]:
        self._ask()
        time.sleep(seconds)
        return self._ask()

    def _ask(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _set(client: GrpcClient, rate: int | None) -> None:
    level = "OFF" if rate is None else "TIMESTAMPS"
    changes = {"trace_level": [level], "trace_rate": [str(rate or 1000)]}
    client.update_trace_settings(MODEL, changes, timeout_seconds=5)
    time.sleep(SETTLE_SECONDS)


def _cpu_seconds(pids: list[int]) -> float:
    """What the threads of these processes have run, to the nanosecond."""
    spent = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                spent += int((thread / "schedstat").read_text("ascii").split()[0])
    return spent / 1e9


def _pairs(
    triton: EmbeddedTriton, client: GrpcClient, load: _Load, rate: int, count: int
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Windows without and with tracing, one right after the other, in random order."""
    rng = random.Random(figures.SEED + rate)  # noqa: S311 - an order, no secret
    off, on = [], []
    for _ in range(count):
        order = [None, rate]
        rng.shuffle(order)
        for setting in order:
            _set(client, setting)
            pids = [triton.pid, *triton.stub_pids()]
            before = _cpu_seconds(pids)
            window = load.measure(WINDOW_SECONDS)
            spent = _cpu_seconds(pids) - before
            window["cpu_per_request"] = spent / window["requests"]
            (off if setting is None else on).append(window)
    return off, on


@contextlib.contextmanager
def _traced_server() -> Iterator[EmbeddedTriton]:
    """A Triton that traces to files on demand, and a sidecar that reads them."""
    require_triton()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = (
            "level=OFF",
            f"triton,file={folder}/t.json",
            "triton,log-frequency=100",
        )
        arguments = [part for option in options for part in ("--trace-config", option)]
        triton = stack.enter_context(EmbeddedTriton(MODELS, arguments=arguments))
        collector: dict[str, Any] = {
            "kind": "traces",
            "interval_seconds": 1.0,
            "files": {"path": f"{folder}/t.json", "owner": True},
            "otlp": None,
        }
        config = {"target": triton_settings(triton), "collectors": [collector]}
        stack.enter_context(sidecar({**config, "probes": []}))
        yield triton


def cost(*, quick: bool = False) -> Iterator[Figure]:
    """What one trace costs the server, every request being traced at a low rate.

    A hundred times the effect of tracing one in a hundred, and so to be seen on a
    machine where other things run.
    """
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(_traced_server())
        client = GrpcClient(triton.grpc)
        load = stack.enter_context(
            contextlib.closing(_Load(triton.grpc, LOW_REQUESTS_PER_SECOND))
        )
        load.measure(2.0)
        off, on = _pairs(triton, client, load, 1, 4 if quick else PAIRS)
    extra = [
        (traced["cpu_per_request"] - plain["cpu_per_request"]) * 1e6
        for plain, traced in zip(off, on, strict=True)
    ]
    plain = figures.median([window["cpu_per_request"] for window in off])["value"]
    found = figures.median(extra)
    setup = (
        f"CPU time of the server and its backend, every request traced against none at"
        f" {LOW_REQUESTS_PER_SECOND:g} requests a second, pairs of windows of"
        f" {WINDOW_SECONDS:g} s in random order"
    )
    yield figures.at_most(
        "trace_server_cpu",
        unit="microseconds",
        goal=None,
        n=len(extra),
        untraced_request=plain * 1e6,
        seed=figures.SEED,
        measured=setup,
        **found,
    )
    for rate in (*RATES, 1):
        share = {key: value / rate / (plain * 1e4) for key, value in found.items()}
        figure = figures.at_most(
            f"trace_rate_{rate}_server_cpu_share",
            unit="percent",
            goal=1.0 if rate == DECIDED_RATE else None,
            n=len(extra),
            measured=f"that cost, divided by {rate}, of the CPU time of a request",
            **share,
        )
        yield figure


def overhead(*, quick: bool = False) -> Iterator[Figure]:
    """What tracing takes from the server, by rate, while the sidecar reads the files."""
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(_traced_server())
        client = GrpcClient(triton.grpc)
        load = stack.enter_context(contextlib.closing(_Load(triton.grpc)))
        load.measure(2.0)
        for rate in RATES:
            count = DECIDING_PAIRS if rate == DECIDED_RATE else PAIRS
            windows = _pairs(triton, client, load, rate, 4 if quick else count)
            yield from _loss(rate, *windows)


def _loss(
    rate: int, off: list[dict[str, float]], on: list[dict[str, float]]
) -> Iterator[Figure]:
    for key, label, sign in (
        ("requests_per_second", "throughput", -1.0),
        ("p99_seconds", "p99", 1.0),
        ("cpu_per_request", "server_cpu", 1.0),
    ):
        ratio = figures.median_ratio(
            [window[key] for window in on], [window[key] for window in off]
        )
        change = sorted(sign * (ratio[end] - 1) * 100 for end in ("ci_low", "ci_high"))
        goal = 1.0 if (label, rate) == ("throughput", DECIDED_RATE) else None
        figure = figures.at_most(
            f"trace_rate_{rate}_{label}_{'loss' if sign < 0 else 'rise'}",
            sign * (ratio["value"] - 1) * 100,
            "percent",
            goal,
            n=len(on),
            ci_low=change[0],
            ci_high=change[1],
            off=float(figures.median([window[key] for window in off])["value"]),
            seed=figures.SEED,
            measured=f"one request in {rate} traced against none, pairs of windows of"
            f" {WINDOW_SECONDS:g} s in random order, {USERS} clients in a closed loop,"
            " the sidecar reading the files on the same cores",
        )
        if goal is not None and change[0] <= goal < change[1]:
            figure["ok"] = None
        yield figure


def deaths(*, quick: bool = False) -> Iterator[Figure]:
    """How often tracing ends the server, by mode, rate and load; none without it."""
    yield from _deaths(trace_deaths.CELLS, quick=quick)


def deaths_sampled(*, quick: bool = False) -> Iterator[Figure]:
    """The same for longer where one request in ten is traced."""
    yield from _deaths((trace_deaths.SAMPLED,), quick=quick)


def deaths_eager(*, quick: bool = False) -> Iterator[Figure]:
    """The same where OpenTelemetry's batches are sent every second."""
    yield from _deaths((trace_deaths.EAGER,), quick=quick)


def _deaths(cells: Iterable[trace_deaths.Cell], *, quick: bool) -> Iterator[Figure]:
    require_triton()
    for cell in cells:
        tally = trace_deaths.measured(cell, 6.0 if quick else cell.seconds)
        traced = tally.answered / cell.rate
        found = figures.rate(len(tally.faces), traced / DEATHS_PER)
        yield figures.at_most(
            cell.name,
            unit=f"deaths per {DEATHS_PER} traces",
            goal=None,
            n=round(traced),
            crashes=tally.faces.count("crash"),
            hangs=tally.faces.count("hang"),
            live_while_hung=tally.live_while_hung,
            ready_while_hung=tally.ready_while_hung,
            last_words=dict(Counter(tally.last_words)),
            requests=tally.answered,
            delivered=tally.delivered,
            requests_per_second=tally.answered / tally.loaded_seconds,
            seed=figures.SEED,
            versions={"triton": tally.version},
            measured=cell.measured,
            **found,
        )
