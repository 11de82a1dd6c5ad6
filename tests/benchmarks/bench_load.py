"""The load engine: speed and cost beside perf_analyzer, punctuality inside Locust."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import loaded
from perf_analyzer import VERSION, PerfAnalyzer
from sidecar_process import require_triton

from exporter.histograms.histogram import Histogram
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

_MODELS = Path(__file__).parents[1] / "data" / "models"
_LEAST_SENDS = 10_000
_SECONDS_A_RATE = 90.0


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
    return figures.ratio_at_most(
        name,
        ours,
        theirs,
        goal,
        measured=f"{measured}; median of n rounds",
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
            turns = 1 if quick else math.ceil(_SECONDS_A_RATE / seconds)
            documents = [
                loaded.locust_document(triton, rate, seconds, seed=seed)
                for seed in range(rate, rate + turns)
            ]
            yield from _kept_time(rate, seconds, documents)


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
    """(rate, variation) of the schedule and of the sends."""
    parts = (document["summary"][part] for part in ("schedule", "sends"))
    return [(part["requests_per_second"], part["gap_variation"]) for part in parts]
