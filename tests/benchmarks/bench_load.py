"""The load engine beside perf_analyzer and Locust: speed, cost, precision, the truth."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bare_timer
import figures
import loaded
import numpy as np
from perf_analyzer import VERSION, PerfAnalyzer
from processes import require_triton

from exporter.errors import UnavailableError
from exporter.histogram import Histogram
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from loadtests.engine import Options, run_open
from loadtests.prepare import prepared
from loadtests.profiles.poisson import Poisson
from loadtests.profiles.seeding import arrivals_of
from loadtests.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure

    from loadtests.result import RunResult

_MODELS = Path(__file__).parents[1] / "data" / "models"
_STALL_RATE = 1000
_STALL_SECONDS = 12
_STALL_AT = 4.0
_LEAST_SENDS = 10_000
_SECONDS_A_RATE = 90.0
_DRAIN_SECONDS = 0.5
_LOOK_SECONDS = 0.005


def closed_loop(*, quick: bool = False) -> Iterator[Figure]:
    """Concurrency 32, in turns with perf_analyzer: throughput, and CPU a request."""
    require_triton()
    analyzer = PerfAnalyzer()
    seconds, windows = (1.5, "2") if quick else (3.0, "4")
    costs: dict[tuple[str, str], list[loaded.Cost]] = {}
    with EmbeddedTriton(_MODELS) as triton:
        for _ in range(2 if quick else 7):
            for protocol in ("grpc", "http"):
                load = ("--concurrency", "32", "--duration", f"{seconds + 3:g}")
                command = loaded.ours(triton, protocol, *load)
                found = loaded.closed_cost(triton, command, seconds=seconds)
                costs.setdefault((protocol, "ours"), []).append(found)
                load = ("--concurrency-range", "32", "-p", "1500", "-r", windows)
                command = loaded.theirs(analyzer, triton, protocol, *load)
                found = loaded.closed_cost(
                    triton,
                    command,
                    seconds=seconds,
                    ends=False,
                    env=analyzer.environment,
                )
                costs.setdefault((protocol, "theirs"), []).append(found)
    for protocol, slower, dearer in (("grpc", 1 / 0.9, 1.3), ("http", 1.0, 1.1)):
        ours, theirs = costs[protocol, "ours"], costs[protocol, "theirs"]
        yield _ratio(
            f"load_closed_{protocol}_time",
            [1 / cost.requests_per_second for cost in ours],
            [1 / cost.requests_per_second for cost in theirs],
            goal=slower,
            peer_name="perf_analyzer, seconds a request",
            measured="time a request at concurrency 32 (what the server counted), over "
            "perf_analyzer's just after; the throughput's ratio is 1 over it",
        )
        yield _ratio(
            f"load_closed_{protocol}_cpu",
            [cost.cpu_microseconds for cost in ours],
            [cost.cpu_microseconds for cost in theirs],
            goal=dearer,
            peer_name="perf_analyzer, microseconds a request",
            measured="client CPU a request at concurrency 32, over perf_analyzer's",
        )


def _ratio(
    name: str,
    ours: list[float],
    theirs: list[float],
    *,
    goal: float,
    peer_name: str,
    measured: str,
) -> Figure:
    return figures.at_most(
        name,
        unit="ratio",
        goal=goal,
        measured=f"{measured}; median of n rounds",
        n=len(ours),
        seed=figures.SEED,
        **figures.median_ratio(ours, theirs),
        ours=figures.median(ours)["value"],
        peer=figures.median(theirs)["value"],
        peer_name=peer_name,
        versions=figures.versions("grpcio", perf_analyzer=VERSION),
    )


def open_loop(*, quick: bool = False) -> Iterator[Figure]:
    """Inside Locust: how late each request is sent, and whether all together are the
    Poisson process that was asked for, up to 2,000 a second a worker."""
    require_triton()
    with EmbeddedTriton(_MODELS) as triton:
        for rate in (500, 1000, 2000):
            # The variation of the gaps of fewer is not known to 3 %.
            seconds = 3.0 if quick else max(8.0, _LEAST_SENDS / rate)
            documents, alone = [], []
            turns = 1 if quick else math.ceil(_SECONDS_A_RATE / seconds)
            for seed in range(rate, rate + turns):
                alone.append(bare_timer.gap_variation(rate, seconds, seed))
                document = loaded.locust_document(triton, rate, seconds, seed=seed)
                documents.append(document)
            yield from _kept_time(rate, seconds, documents)
            yield figures.at_most(
                f"load_bare_timer_{rate}_cv_error",
                unit="ratio",
                goal=None,
                measured="coefficient of variation of the gaps between the wakings of a "
                "process that waits and sends nothing, at real-time priority, less 1: "
                f"what this machine does to {rate} Poisson instants a second, in turns "
                "with the runs above; median of n",
                n=len(alone),
                seed=rate,
                **figures.median([abs(variation - 1.0) for variation in alone]),
            )


def _kept_time(
    rate: int, seconds: float, documents: list[dict[str, Any]]
) -> Iterator[Figure]:
    about = (
        f"{rate} Poisson requests a second for {seconds:g} s by one Locust worker over "
        "gRPC; median of n runs"
    )
    more = {"n": len(documents), "seed": rate, "versions": figures.versions("locust")}
    states = [document["histograms"]["dispatch_delay"] for document in documents]
    delays = [Histogram.from_state(state) for state in states]
    for q, goal in ((0.5, 150.0), (0.99, 600.0)):
        yield figures.at_most(
            f"load_locust_{rate}_late_p{100 * q:g}",
            unit="microseconds",
            goal=goal,
            measured=f"from when a request is due to its send, {about}",
            **figures.median([1e6 * (delay.quantile(q) or 0.0) for delay in delays]),
            **more,
        )
    paces = [_paces(document) for document in documents]
    yield figures.at_most(
        f"load_locust_{rate}_rate_error",
        unit="ratio",
        goal=0.01,
        measured=f"rate of the sends over that of the schedule, less 1, {about}",
        **figures.median([abs(sends[0] / due[0] - 1.0) for due, sends in paces]),
        **more,
    )
    yield figures.at_most(
        f"load_locust_{rate}_cv_error",
        unit="ratio",
        goal=0.03,
        measured="coefficient of variation of the gaps between sends, less the 1 of a "
        f"Poisson process, {about}; that of the schedule is within "
        f"{max(abs(due[1] - 1.0) for due, _ in paces):.2g}",
        **figures.median([abs(sends[1] - 1.0) for _, sends in paces]),
        **more,
    )


def _paces(document: dict[str, Any]) -> list[tuple[float, float]]:
    """(rate, variation) of the schedule and of the sends, of the one worker there is."""
    (worker,) = document["workers"].values()
    parts = (worker["summary"][part] for part in ("schedule", "sends"))
    return [(part["requests_per_second"], part["gap_variation"]) for part in parts]


def stall(*, quick: bool = False) -> Iterator[Figure]:
    """A server stopped for 1 s at 1,000 requests a second in 12 s: whose p99 says so?"""
    require_triton()
    analyzer = PerfAnalyzer()
    figures.require(
        found=loaded.has_loadgen(), what="LoadGen with grpcio", how=loaded.LOADGEN_HOW
    )
    reported: dict[str, float | None] = {}
    with EmbeddedTriton(_MODELS) as triton:
        told, died = _our_stalls(triton, 1 if quick else 5)
        for name, measure in _peers(triton, analyzer).items():
            reported[name] = _with_stall(triton, measure)
    errors = [abs(ours / truth - 1.0) for ours, truth in told]
    reported["tritonwatch"] = float(np.median([ours for ours, _ in told]))
    reported["truth"] = float(np.median([truth for _, truth in told]))
    yield figures.at_most(
        "load_stall_p99_error",
        unit="ratio",
        goal=0.03,
        measured="p99 that the run reports over that which the schedule and the server's "
        "own count of its answers over time make, less 1; median of n runs; the server "
        f"itself ended in {died} more",
        n=len(errors),
        seed=figures.SEED,
        **figures.median(errors),
    )
    for name, seconds in reported.items():
        if seconds is None:
            continue  # it ended without a number, as perf_analyzer does
        yield figures.at_most(
            f"load_stall_p99_{name}",
            seconds,
            "seconds",
            None,
            measured=f"p99 that {name} reports of the same",
            n=len(told) if name in {"tritonwatch", "truth"} else 1,
        )


def _our_stalls(
    triton: EmbeddedTriton, times: int
) -> tuple[list[tuple[float, float]], int]:
    """So many, and how many more the server did not outlive.

    A stub of the Python backend that is stopped at full load now and then dies of it, and
    takes the server along (an interprocess lock it held is gone).
    """
    told: list[tuple[float, float]] = []
    died = 0
    while len(told) < times:
        try:
            told.append(_our_stall(triton))
        except UnavailableError:
            if triton.running or died == times:
                raise
            died += 1
            triton.start()
    return told, died


def _our_stall(triton: EmbeddedTriton) -> tuple[float, float]:
    """The reported p99, and what it must have been, in seconds.

    Which is known from the schedule and the server's own count of what it had answered
    when: it answers in the order of asking, so that the k-th request that was due had
    its answer when the count was k. The count is that of the statistics extension.
    """
    stopped: list[float] = []
    answered: list[tuple[float, int]] = []

    def stop() -> None:
        triton.freeze()
        stopped.append(time.time())
        time.sleep(1.0)
        triton.thaw()
        stopped.append(time.time())
        while time.time() < stopped[-1] + _DRAIN_SECONDS:
            count = loaded.served(client)
            answered.append((time.time(), count))
            time.sleep(_LOOK_SECONDS)

    client = GrpcClient(triton.grpc)
    timer = loaded.during(_STALL_AT, stop)
    result = _open(triton, "grpc", _STALL_RATE, _STALL_SECONDS, Options())
    timer.join()
    last = loaded.served(client)
    client.close()
    due = result.requests.intended
    usual = float(np.median((result.requests.done - due)[due < _STALL_AT - 1.0]))
    began, ended = (instant - result.about.started_at for instant in stopped)
    instants = np.array([ended, *(at - result.about.started_at for at, _ in answered)])
    numbers = np.array([count - last + due.size for _, count in answered])
    before = np.searchsorted(due, began - usual)  # what was answered before the stop
    done = np.interp(np.arange(1, due.size + 1), [before, *numbers], instants)
    held = (due >= began - usual) & (due < ended)
    waited = np.where(held, done - due, usual)
    truth = float(np.quantile(waited, 0.99, method="inverted_cdf"))
    return result.from_intended.quantile(0.99) or 0.0, truth


def _peers(
    triton: EmbeddedTriton, analyzer: PerfAnalyzer
) -> dict[str, Callable[[], float | None]]:
    load = ("--request-rate-range", str(_STALL_RATE), "-p", "4000", "-r", "3")
    poisson = ("--request-distribution", "poisson")

    def analyzed(*options: str) -> Callable[[], float | None]:
        command = [
            *(str(analyzer.program), "-m", loaded.MODEL, "-i", "grpc"),
            *("-u", triton.grpc, "--measurement-mode", "time_windows", "-s", "900"),
            *(*load, *poisson, *options),
        ]
        return lambda: loaded.analyzer_p99(command, analyzer.environment)

    return {
        "perf_analyzer_sync": analyzed("--sync"),
        "perf_analyzer_async": analyzed("--async"),
        "locust_constant_throughput": lambda: loaded.plain_locust_p99(
            triton, _STALL_RATE, _STALL_SECONDS
        ),
        "loadgen_server": lambda: loaded.loadgen_p99(
            triton, _STALL_RATE, _STALL_SECONDS
        ),
        "tritonwatch_in_locust": lambda: loaded.locust_p99(
            triton, _STALL_RATE, _STALL_SECONDS
        ),
    }


def _with_stall(
    triton: EmbeddedTriton, measure: Callable[[], float | None]
) -> float | None:
    def stop() -> None:
        triton.freeze()
        time.sleep(1.0)
        triton.thaw()

    timer = loaded.during(_STALL_AT + 2.0, stop)
    told = measure()
    timer.join()
    return told


def _open(
    triton: EmbeddedTriton, protocol: str, rate: int, seconds: float, options: Options
) -> RunResult:
    scenario = Scenario.model_validate(
        {
            "target": {"protocol": protocol, "address": getattr(triton, protocol)},
            "models": [{"model": loaded.MODEL}],
            "profile": {"kind": "poisson"},
        }
    )
    profile = Poisson(requests_per_second=rate, duration_seconds=seconds)
    with prepared(scenario) as mix:
        target = scenario.target.target()
        due = arrivals_of(profile, figures.SEED)
        return run_open(target, mix, due, options=options)
