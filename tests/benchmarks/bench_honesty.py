"""Honesty: how often the intervals cover, on requests that depend on each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import figures
import numpy as np
from dependent_latencies import PROCESSES

from exporter.histograms.process_quantiles import process_quantiles
from exporter.histograms.windowed_histogram import WindowedHistogram

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
