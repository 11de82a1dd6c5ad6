"""Honesty: how often intervals cover and verdicts are false, on dependent requests."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
from dependent_latencies import (
    COMPARED,
    PROCESSES,
    STREAMS,
    growing_load,
    independent,
    outages,
    unlike_shapes,
    window_levels,
)

from exporter.features.comparison.answer_pairs import Answered, Pairs
from exporter.features.comparison.confidence import (
    LEAST_PAIRS,
    doubt,
    mean_ratio,
    unseen_stalls,
)
from exporter.features.comparison.paired_intervals import estimated, walk
from exporter.features.comparison.production_comparison import Windows
from exporter.histograms.histogram import Histogram
from exporter.histograms.process_quantiles import ProcessQuantiles
from exporter.histograms.windowed_histogram import WindowedHistogram
from exporter.triton.protocol_types import InferReply
from loadtests.dependent_intervals import quantile_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from figures import Figure

    Processes = Mapping[str, tuple[Any, Any, int]]

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
JUDGED = (0.5, 0.9, 0.95, 0.99)
SLOTS = 30
WINDOW_SECONDS = 300.0
BEFORE = 12
"""Windows that are remembered."""
NOMINAL = 0.95


def quantiles(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of the process's quantile, through the ring of time slots."""
    yield from _covered("quantiles", PROCESSES, BEFORE, quick=quick)


def stream_gaps(*, quick: bool = False) -> Iterator[Figure]:
    """The same of gaps between streamed responses: those of a stream are alike."""
    yield from _covered("stream_gaps", STREAMS, BEFORE, quick=quick)


def first_windows(*, quick: bool = False) -> Iterator[Figure]:
    """The same of the first window after a start."""
    yield from _covered("first_windows", PROCESSES, 0, quick=quick)
    yield from _covered("first_windows", STREAMS, 0, quick=quick)


def _covered(
    kind: str, processes: Processes, before: int, *, quick: bool
) -> Iterator[Figure]:
    """Coverage in windows that come after `before` others of the same process."""
    for name, (draw, truth, count) in processes.items():
        windows = 20 if quick else 400 if count < 100_000 else 200
        at_once = 20 if before else 1
        rng = np.random.default_rng(figures.SEED)
        found = [
            window
            for _ in range(windows // at_once)
            for window in _consecutive(
                draw(rng, (before + at_once) * count), before + at_once
            )[before:]
        ]
        for q in JUDGED:
            ends = [window[q].interval for window in found]
            yield _figure(f"{kind}.{name}.p{100 * q:g}", ends, truth(q), count)


def load_reports(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of the quantiles in the report of a load run, from requests in order."""
    for name, (draw, truth, count) in PROCESSES.items():
        runs = 20 if quick else 400 if count < 100_000 else 100
        rng = np.random.default_rng(figures.SEED)
        drawn = [draw(rng, count) for _ in range(runs)]
        for q in JUDGED:
            sides = [quantile_side(values, q, NOMINAL) for values in drawn]
            ends = [None if side.reason else (side.low, side.high) for side in sides]
            yield _figure(f"load_reports.{name}.p{100 * q:g}", ends, truth(q), count)


def _figure(
    name: str, ends: list[tuple[float, float] | None], truth: float, count: int
) -> Figure:
    """`ok` where coverage is within two standard errors of 0.95, or nothing is shown."""
    windows, found = len(ends), [end for end in ends if end is not None]
    hits, shown = sum(low <= truth <= high for low, high in found), len(found)
    coverage = hits / shown if shown else math.nan
    error = math.sqrt(NOMINAL * (1.0 - NOMINAL) / shown) if shown else math.nan
    return {
        "name": f"honesty.{name}",
        "value": round(coverage, 4) if shown else None,
        "unit": "coverage",
        "goal": NOMINAL,
        "ok": not shown or coverage >= NOMINAL - 2.0 * error,
        "n": windows,
        "standard_error": round(error, 4) if shown else None,
        "absent": round(1.0 - shown / windows, 4),
        "wrong": round((shown - hits) / windows, 4),
        "seed": figures.SEED,
        "measured": f"95 % intervals that are shown and hold the true quantile of the "
        f"process; {count} requests in each of {windows} windows or runs; `absent`: "
        "those without an interval, `wrong`: those with one that misses",
    }


def _consecutive(values, windows):
    """Return the quantiles of each window, which remembers those before it."""
    process = ProcessQuantiles(QUANTILES, WINDOW_SECONDS)
    step = WINDOW_SECONDS / SLOTS
    found = []
    for number, part in enumerate(np.array_split(values, windows)):
        window = WindowedHistogram(WINDOW_SECONDS, SLOTS)
        for slot, of_slot in enumerate(np.array_split(part, SLOTS)):
            window.record_many(of_slot, slot * step)
        slots = window.slots((SLOTS - 1) * step)
        seen = process.of(slots, number * WINDOW_SECONDS)
        found.append({each.q: each for each in seen})
    return found


PAIRS = 5_000
WINDOWS = 250
LATENCIES = {"mean": math.nan, "p50": 0.5, "p95": 0.95}
ALPHA = 0.05
SLOWER = 1.1


def _levels(correlation):
    def draw(rng):
        return [window_levels(rng, WINDOWS, correlation) for _ in range(2)]

    return draw, "40 requests to each"


PRODUCTION = {
    **{f"levels AR({c:g})": _levels(c) for c in (0.0, 0.6, 0.9)},
    "growing load": (
        lambda rng: growing_load(rng, WINDOWS),
        "90 and 10 requests under a load that grows tenfold",
    ),
}


def comparisons(*, quick: bool = False) -> Iterator[Figure]:
    """False calls of two instances of one model, and what a true difference costs."""
    runs = 10 if quick else 400
    for name, draw in COMPARED.items():
        # Of unlike shapes only the means are equal.
        metrics = ["mean"] if draw is unlike_shapes else LATENCIES
        rng = np.random.default_rng(figures.SEED)
        drawn = [draw(rng, PAIRS) for _ in range(runs)]
        for metric in metrics:
            hits = sum(_called(metric, *pair) < math.inf for pair in drawn)
            yield _false_calls(f"{name}.{metric}", hits, runs, f"{PAIRS} pairs")
    rng = np.random.default_rng(figures.SEED)
    hits = sum(_outages_called(rng, 2 * PAIRS) for _ in range(runs))
    what = f"{2 * PAIRS} pairs, 2 % of each side's in outages of 30"
    yield _false_calls("outages.success", hits, runs, what)
    for name, (draw, what) in PRODUCTION.items():
        rng = np.random.default_rng(figures.SEED)
        called = Counter(m for _ in range(runs) for m in _windows(*draw(rng)))
        for metric in ("mean", "p50"):
            what_all = f"{WINDOWS} windows in mode ab, {what}"
            yield _false_calls(f"ab, {name}.{metric}", called[metric], runs, what_all)
    yield from _costs(10 if quick else 100)


def _costs(runs: int) -> Iterator[Figure]:
    """Pairs until a challenger that is 10 % slower is called different."""
    for metric in LATENCIES:
        rng = np.random.default_rng(figures.SEED)
        took = [
            _called(metric, independent(rng, 4 * PAIRS), SLOWER * y, steps=60)
            for y in (independent(rng, 4 * PAIRS) for _ in range(runs))
        ]
        yield {
            "name": f"honesty.comparisons.cost.{metric}",
            "value": float(np.median(took)),
            "unit": "pairs",
            "goal": None,
            "ok": None,
            "n": runs,
            "seed": figures.SEED,
            "ninth_decile": float(np.quantile(took, 0.9)),
            "measured": "median of the pairs until a challenger that is 10 % slower is "
            "called different; independent lognormal latencies with sigma 0.5",
        }


def _false_calls(name: str, hits: int, runs: int, what: str) -> Figure:
    error = math.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    return {
        "name": f"honesty.comparisons.{name}",
        "value": round(hits / runs, 4),
        "unit": "share of runs",
        "goal": ALPHA,
        "ok": hits / runs <= ALPHA + 2.0 * error,
        "n": runs,
        "standard_error": round(error, 4),
        "seed": figures.SEED,
        "measured": f"runs in which the interval at alpha {ALPHA:g} ever excludes no "
        f"difference of two that are alike; {what}",
    }


def _looks(count: int, steps: int = 20) -> list[int]:
    return np.unique(np.geomspace(50, count, steps).astype(int)).tolist()


def _called(metric, x, y, steps=20) -> float:
    """After how many pairs the interval excludes no difference; infinite if never.

    Whether it does is asked of the interval's own test: to find its ends takes a
    hundred times as long.
    """
    for look in _looks(len(x), steps):
        if _excludes(metric, x[:look], y[:look]):
            return look
    return math.inf


def _excludes(metric, x, y) -> bool:
    if metric == "mean":
        found = None if unseen_stalls(len(x)) else mean_ratio(x, y, ALPHA)
        return found is not None and not found.low <= 0.0 <= found.high
    q = LATENCIES[metric]
    inflation = estimated(x, y, q)[1]
    if len(x) < LEAST_PAIRS or doubt(inflation, len(x)):
        return False
    return not walk(x, y, q).within(ALPHA, inflation)


def _outages_called(rng, count) -> bool:
    x, y = (outages(rng, count) for _ in range(2))
    pairs = Pairs(("success",), ALPHA, "auto", 1e-3)
    answers = Answered(InferReply((), 1.0)), Answered(None, "down")
    done = 0
    for look in _looks(count):
        for place in range(done, look):
            pairs.add(answers[int(x[place])], answers[int(y[place])], None)
        done = look
        found = pairs.intervals()["success"]
        if not found.low <= 0.0 <= found.high:
            return True
    return False


def _windows(x, y) -> set[str]:
    """The metrics that mode ab calls."""
    windows, called, done = Windows(), set(), 0
    for look in _looks(WINDOWS, 10):
        for place in range(done, look):
            windows.add(_recorded(x[place]), _recorded(y[place]))
        done = look
        found = {
            "mean": windows.mean_ratio(ALPHA),
            "p50": windows.quantile_ratio(0.5, ALPHA),
        }
        called |= {m for m, i in found.items() if i and not i.low <= 0.0 <= i.high}
    return called


def _recorded(values):
    histogram = Histogram()
    histogram.record_many(values)
    return histogram
