"""Honesty of load results: capacities and comparisons on dependent data."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import figures
import numpy as np
from dependent_latencies import (
    autoregressive,
    independent,
    long_memory,
    power_law_spells,
    queue,
)
from simulated_queues import BURSTY, QUEUES, search_of

from exporter.histograms.histogram import Histogram
from loadtests.report.comparison_report import compared
from loadtests.result import About, Outcome, Requests, RunResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from simulated_queues import Queue

GOAL = 0.93
NOMINAL = 0.95
ALPHA = 0.05
TOLERANCE = 0.05
SEARCHES = ((90.0, 120, (*QUEUES, *BURSTY)), (600.0, 40, BURSTY))
"""Budget in seconds (90 is the default), how many searches, and of what."""


def capacity(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of the true capacity by the intervals of VALID searches."""
    for budget, searches, servers in SEARCHES:
        for server in servers:
            count = 5 if quick else searches
            found = [_searched(server, seed, budget) for seed in range(count)]
            yield _capacity(f"{server.name}.{budget:g}_s", np.array(found), server)


def _searched(server: Queue, seed: int, budget: float) -> tuple[float, ...]:
    """Return whether a search is VALID, covers, is too high; its error ratio and half width."""
    rng = np.random.default_rng((figures.SEED, seed))
    search = search_of(server, rng, budget_seconds=budget)
    search.run(0.6 * server.capacity)
    found = search.found(resamples=500)
    ratio = search.settings.level_ratio
    beside = sum(1 / ratio <= run.rate / found.rate <= ratio for run in search.runs)
    known = 0 < found.low <= found.high < math.inf
    # The reasons of loadtests.capacity.campaign; the machine has none here.
    valid = known and beside >= search.settings.repetitions and not search.doubts(found)
    covers = found.low <= server.capacity <= found.high
    high = found.low > server.capacity
    return (
        valid,
        covers,
        high,
        found.rate / server.capacity - 1,
        found.width_ratio,
    )


def _capacity(name: str, found: np.ndarray, server: Queue) -> Figure:
    valid, covers = found[:, 0] > 0, found[:, 1] > 0
    shown = int(valid.sum())
    coverage = float(covers[valid].mean()) if shown else math.nan
    off = found[valid, 3]
    return {
        "name": f"honesty.capacity.{name}",
        "value": round(coverage, 4) if shown else None,
        "unit": "coverage",
        "goal": GOAL,
        "ok": coverage >= GOAL if shown else None,
        "n": len(found),
        "standard_error": _error(GOAL, shown),
        "absent": round(1 - shown / len(found), 4),
        "wrong": round(float((valid & ~covers).mean()), 4),
        "too_high": round(float((valid & (found[:, 2] > 0)).mean()), 4),
        "coverage_of_all": round(float(covers.mean()), 4),
        "bias": round(float(off.mean()), 4) if shown else None,
        "bias_error": round(float(off.std() / math.sqrt(shown)), 4) if shown else None,
        "median_width_ratio": round(float(np.median(found[valid, 4])), 4)
        if shown
        else None,
        "seed": figures.SEED,
        "measured": f"intervals of VALID searches that hold the {server.capacity:.4g}/s at "
        "which 1 % of requests are late in the long run; `absent`: searches that are not "
        "VALID, `wrong`: VALID ones that miss, of all; `bias` of the VALID ones",
    }


PROCESSES = {
    "independent": independent,
    "AR(0.6)": lambda rng, count: autoregressive(rng, count, 0.6),
    "AR(0.9)": autoregressive,
    "AR(0.995)": lambda rng, count: autoregressive(rng, count, 0.995),
    "M/M/1 at 50 %": queue(0.5),
    "M/M/1 at 80 %": queue(0.8),
    "M/M/1 at 95 %": queue(0.95),
    "long memory": long_memory,
    "power-law spells": power_law_spells,
}


def load_runs(*, quick: bool = False) -> Iterator[Figure]:
    """False calls of two load runs of one server, and how often 10 % slower is found."""
    for count in (10_000, 100_000):
        runs = 8 if quick else 200 if count < 100_000 else 40
        for name, draw in PROCESSES.items():
            rng = np.random.default_rng(figures.SEED)
            calls = Counter(
                _called(draw(rng, count), draw(rng, count)) for _ in range(runs)
            )
            slower = Counter(
                _called(draw(rng, count), 1.1 * draw(rng, count))
                for _ in range(runs // 4)
            )
            called = (calls["worse"] + calls["better"]) / runs
            error = math.sqrt(ALPHA * (1 - ALPHA) / runs)
            yield {
                "name": f"honesty.load_runs.{name}.{count}",
                "value": round(called, 4),
                "unit": "share of pairs of runs",
                "goal": ALPHA,
                "ok": called <= ALPHA + 2 * error,
                "n": runs,
                "standard_error": round(error, 4),
                "undecided": round(calls["unknown"] / runs, 4),
                "ten_percent_slower_found": round(slower["worse"] / (runs // 4), 4),
                "seed": figures.SEED,
                "measured": f"two runs of {count} requests to servers that are alike, of which "
                "some figure is called better or worse at a tolerance of 5 %",
            }


def _called(before: np.ndarray, after: np.ndarray) -> str:
    """The call over all figures; better counts although others are not decided."""
    found = compared(_run(before), _run(after), tolerance_ratio=TOLERANCE)
    calls = {change.call for change in found.changes}
    return next((c for c in ("worse", "better", "unknown") if c in calls), "same")


def _run(latencies: np.ndarray) -> RunResult:
    """Requests at 100 a second, of 10 ms on average times `latencies`."""
    requests = Requests.empty(latencies.size)
    requests.intended[:] = requests.sent[:] = np.arange(latencies.size) / 100.0
    requests.done[:] = requests.intended + 0.01 * latencies
    requests.outcome[:] = Outcome.OK
    about = About("open", "grpc", "simulated", ("queue",), 1, 10.0, 100, "", 0.0)
    # A comparison takes no histogram; to make them takes longer than to compare.
    nothing = Histogram()
    return RunResult(
        about,
        requests,
        from_intended=nothing,
        from_send=nothing,
        dispatch_delay=nothing,
        first_response=nothing,
        mean_gap=nothing,
        between_responses=nothing,
        duration_seconds=latencies.size / 100.0,
        sender_cpu_seconds=0.0,
    )


def _error(share: float, shown: int) -> float | None:
    return round(math.sqrt(share * (1 - share) / shown), 4) if shown else None
