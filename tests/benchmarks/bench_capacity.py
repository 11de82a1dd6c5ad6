"""Capacity: whether the interval holds, how searches differ, and LoadGen beside us.

Coverage is of simulated queues whose capacity is known, so that nothing but the
statistics is measured. The searches on the real model take ten minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import figures
import numpy as np
from scipy import stats
from simulated_queues import QUEUES, search_of

from exporter.triton.embedded import EmbeddedTriton
from loadtests.mlperf import early_stopping
from loadtests.mlperf.schedule import server_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from simulated_queues import Queue

ROOT = Path(__file__).parents[2]
LOADGEN = ROOT / "build" / "loadgen" / "bin" / "python"
SLO = "p99<60ms,errors<0.1%"


def coverage(*, quick: bool = False) -> Iterator[Figure]:
    """A hundred searches of each queue: how many intervals miss the known capacity."""
    searches = 10 if quick else 100
    for queue in QUEUES:
        found = [_searched(queue, seed) for seed in range(searches)]
        missed = sum(not low <= queue.capacity <= high for _, low, high in found)
        rates = np.array([rate for rate, _, _ in found])
        ends = stats.binomtest(missed, searches).proportion_ci()
        yield figures.at_most(
            f"capacity.coverage.{queue.name}",
            100.0 * missed / searches,
            "% missed",
            7.0,
            measured=f"95 % intervals of {searches} searches of 90 s that do not cover "
            f"{queue.capacity:.4g}/s; estimates deviate by "
            f"{np.std(rates[np.isfinite(rates)]) / queue.capacity:.1%}",
            n=searches,
            ci_low=100.0 * float(ends.low),
            ci_high=100.0 * float(ends.high),
            seed=figures.SEED,
        )


def _searched(queue: Queue, seed: int) -> tuple[float, float, float]:
    search = search_of(queue, np.random.default_rng((figures.SEED, seed)))
    search.run(0.6 * queue.capacity)
    found = search.found(resamples=500)
    return found.rate, found.low, found.high


def searches(*, quick: bool = False) -> Iterator[Figure]:
    """The slow demo model, with another seed each: how far searches differ."""
    count, budget = (2, 12) if quick else (5, 90)
    found, took = [], []
    with EmbeddedTriton(ROOT / "deploy" / "models") as triton:
        for seed in range(1, count + 1):
            began = time.monotonic()
            report = _real(triton.grpc, seed, budget)
            took.append(time.monotonic() - began)
            if report["capacity"]:
                found.append(report["capacity"]["requests_per_second"]["estimate"])
    yield figures.at_most(
        "capacity.searches.seconds",
        max(took),
        "s",
        120.0,
        measured=f"the longest of {count} searches of `slow` at {SLO}, start included",
        n=count,
    )
    whole = len(found) == count
    yield figures.at_most(
        "capacity.searches.deviation",
        float(100 * np.std(found, ddof=1) / np.mean(found)) if whole else 100.0,
        "%",
        5.0,
        measured=f"standard deviation over mean of {count} searches with different "
        f"seeds: {', '.join(f'{rate:.4g}' for rate in found)} requests/s "
        "(perf_analyzer's binary search gave no answer on such a job); 100 where one "
        "had no answer",
        n=count,
    )


def _real(address: str, seed: int, budget: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        subprocess.run(
            [
                Path(sys.executable).with_name("tritonwatch"), "load", "capacity",
                "--address", address, "--model", "slow", "--slo", SLO, "--seed",
                str(seed), "--budget", str(budget), "--quiet", "--json", file,
                "--other-cpu", "16",
            ],
            check=False,
            stdout=sys.stderr,
        )  # fmt: skip
        report: dict[str, object] = json.loads(file.read_text("utf-8"))
        return report


def loadgen(*, quick: bool = False) -> Iterator[Figure]:
    """The real LoadGen, same seeds and same latencies: where we say otherwise."""
    figures.require(
        found=LOADGEN.is_file(),
        what="mlcommons-loadgen",
        how="python -m venv build/loadgen && build/loadgen/bin/pip install "
        "mlcommons-loadgen==6.0.17",
    )
    cases = 2 if quick else 10
    asked = [(0.9, t) for t in ((0, 10) if quick else range(101))]
    asked += [(0.99, t) for t in ((0, 10) if quick else (0, 1, 10, 50, 100))]
    least = [(p, t, early_stopping.least_queries(t, p)) for p, t in asked]
    recorded = json.loads(
        subprocess.run(
            [LOADGEN, Path(__file__).with_name("loadgen_peer.py"), str(cases)],
            capture_output=True,
            input=json.dumps(least),
            text=True,
            check=True,
        ).stdout
    )
    wrong = sum(
        not np.array_equal(
            np.rint(
                server_schedule(
                    case["queries_per_second"],
                    case["least_seconds"],
                    case["least_queries"],
                    case["seed"],
                )
                * 1e9
            ).astype(np.int64),
            np.array(case["due_ns"]),
        )
        for case in recorded["schedules"]
    )
    queries = sum(len(case["due_ns"]) for case in recorded["schedules"])
    yield figures.at_most(
        "capacity.loadgen.schedules",
        wrong,
        "schedules",
        0,
        measured=f"Server schedules of the real LoadGen that differ from ours in any of "
        f"{queries} queries by a nanosecond",
        n=len(recorded["schedules"]),
    )
    other = 0
    for case in recorded["verdicts"]:
        latencies = np.full(case["queries"], 0.1 * case["limit_seconds"])
        latencies[: case["misses"]] = 3 * case["limit_seconds"]
        ours = early_stopping.holds(
            latencies, case["limit_seconds"], case["percentile"]
        )
        other += ours != case["early_stopping"]
    yield figures.at_most(
        "capacity.loadgen.verdicts",
        other,
        "verdicts",
        0,
        measured="early stopping of the real LoadGen that differs from ours, at the "
        "least queries for t misses and one fewer: p90 for every t to 100, and p99",
        n=len(recorded["verdicts"]),
    )
