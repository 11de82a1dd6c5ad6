"""Honesty: how often intervals cover and verdicts are false, on dependent requests."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import figures
import numpy as np
from dependent_latencies import (
    COMPARED,
    PROCESSES,
    independent,
    outages,
    unlike_shapes,
    window_levels,
)

from exporter.features.comparison.answer_pairs import Answered, Pairs
from exporter.features.comparison.production_windows import Windows
from exporter.histograms.histogram import Histogram
from exporter.histograms.process_quantiles import process_quantiles
from exporter.histograms.windowed_histogram import WindowedHistogram
from exporter.triton.model import InferReply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
JUDGED = (0.5, 0.9, 0.95, 0.99)
SLOTS = 30
WINDOW_SECONDS = 300.0
NOMINAL = 0.95


def quantiles(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of the process's quantile, through the ring of time slots."""
    for name, (draw, truth, count) in PROCESSES.items():
        windows = 20 if quick else 400 if count < 100_000 else 200
        rng = np.random.default_rng(figures.SEED)
        found = [_of(draw(rng, count)) for _ in range(windows)]
        for q in JUDGED:
            ends = [window[q].interval for window in found]
            shown = [end for end in ends if end is not None]
            hits = sum(low <= truth(q) <= high for low, high in shown)
            yield _figure(f"{name}.p{100 * q:g}", hits, len(shown), windows, count)


def _figure(name: str, hits: int, shown: int, windows: int, count: int) -> Figure:
    """`ok` where coverage is within two standard errors of 0.95, or nothing is shown."""
    coverage = hits / shown if shown else math.nan
    error = math.sqrt(NOMINAL * (1.0 - NOMINAL) / shown) if shown else math.nan
    return {
        "name": f"honesty.quantiles.{name}",
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
        f"process; {count} requests in each of {windows} windows of 30 slots; `absent`: "
        "windows without an interval, `wrong`: windows with one that misses",
    }


def _of(values):
    window = WindowedHistogram(WINDOW_SECONDS, SLOTS)
    step = WINDOW_SECONDS / SLOTS
    for slot, part in enumerate(np.array_split(values, SLOTS)):
        window.record_many(part, slot * step)
    slots = window.slots((SLOTS - 1) * step)
    return {found.q: found for found in process_quantiles(slots, QUANTILES)}


PAIRS = 5_000
WINDOWS = 250
LATENCIES = ("latency_mean", "latency_p50", "latency_p95")
ALPHA = 0.05
SLOWER = 1.1


def comparisons(*, quick: bool = False) -> Iterator[Figure]:
    """False calls of two instances of one model, and what a true difference costs."""
    runs = 10 if quick else 300
    for name, draw in COMPARED.items():
        # Of unlike shapes only the means are equal.
        metrics = LATENCIES[:1] if draw is unlike_shapes else LATENCIES
        rng = np.random.default_rng(figures.SEED)
        called = Counter()
        for _ in range(runs):
            called.update(_called(_pairs(metrics, *draw(rng, PAIRS))).keys())
        measured = f"{PAIRS} pairs of {name}"
        for metric in metrics:
            row = f"{name}.{metric.removeprefix('latency_')}"
            yield _false_calls(row, called[metric], runs, measured)
    rng = np.random.default_rng(figures.SEED)
    hits = sum(bool(_called(_outages(rng, 2 * PAIRS))) for _ in range(runs))
    measured = f"{2 * PAIRS} pairs, 2 % in outages of 30"
    yield _false_calls("outages.success", hits, runs, measured)
    yield from _windows(runs)
    yield from _costs(10 if quick else 60)


def _windows(runs: int) -> Iterator[Figure]:
    for correlation in (0.0, 0.6, 0.9):
        rng = np.random.default_rng(figures.SEED)
        called = Counter()
        for _ in range(runs):
            called.update(_called(_ab(rng, correlation), steps=10).keys())
        for metric in ("mean", "p50"):
            row = f"ab, levels AR({correlation:g}).{metric}"
            measured = f"{WINDOWS} windows of 40 requests to each in mode ab"
            yield _false_calls(row, called[metric], runs, measured)


def _costs(runs: int) -> Iterator[Figure]:
    """Pairs until a challenger that is 10 % slower is called different."""
    for metric in LATENCIES:
        rng = np.random.default_rng(figures.SEED)
        took = []
        for _ in range(runs):
            x, y = (independent(rng, 4 * PAIRS) for _ in range(2))
            called = _called(_pairs((metric,), x, SLOWER * y), steps=40)
            took.append(called.get(metric, math.inf))
        yield {
            "name": f"honesty.comparisons.cost.{metric.removeprefix('latency_')}",
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


def _false_calls(name: str, hits: int, runs: int, measured: str) -> Figure:
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
        f"difference; two that are alike, {measured}",
    }


def _called(comparison, steps: int = 14) -> dict[str, int]:
    """By metric, after how many pairs its interval excluded no difference."""
    called = {}
    add, count, intervals = comparison
    done = 0
    for look in np.unique(np.geomspace(50, count, steps).astype(int)):
        add(done, look)
        done = look
        for metric, found in intervals().items():
            if not found.low <= 0.0 <= found.high:
                called.setdefault(metric, int(look))
    return called


def _pairs(metrics, x, y):
    """A shadow comparison of these latencies."""
    pairs = Pairs(metrics, ALPHA * len(metrics), "auto", 1e-3)

    def add(start: int, end: int) -> None:
        for ours, theirs in zip(x[start:end], y[start:end], strict=True):
            replies = (Answered(InferReply((), float(s))) for s in (ours, theirs))
            pairs.add(*replies, None)

    return add, len(x), pairs.intervals


def _outages(rng, count):
    pairs = Pairs(("success",), ALPHA, "auto", 1e-3)
    answers = Answered(InferReply((), 1.0)), Answered(None, "down")
    x, y = (outages(rng, count) for _ in range(2))

    def add(start: int, end: int) -> None:
        for ours, theirs in zip(x[start:end], y[start:end], strict=True):
            pairs.add(answers[int(ours)], answers[int(theirs)], None)

    return add, count, pairs.intervals


def _ab(rng, correlation):
    windows = Windows()
    x, y = (window_levels(rng, WINDOWS, correlation) for _ in range(2))

    def add(start: int, end: int) -> None:
        for place in range(start, end):
            windows.add(_recorded(x[place]), _recorded(y[place]))

    def intervals():
        found = {
            "mean": windows.mean_ratio(ALPHA),
            "p50": windows.quantile_ratio(0.5, ALPHA),
        }
        return {metric: i for metric, i in found.items() if i is not None}

    return add, WINDOWS, intervals


def _recorded(values):
    histogram = Histogram()
    histogram.record_many(values)
    return histogram
