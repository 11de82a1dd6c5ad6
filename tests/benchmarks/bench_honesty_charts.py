"""Honesty of control charts: how often a learnt baseline has more false alarms than said."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import chart_runs
import figures
import numpy as np
from chart_runs import PROCESSES, Process, learnt, true_run_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

PROMISED = 0.10
BASELINES = 200
RUNS = 40
SAMPLES = 2_500
WANTED = 500.0
SIZES = (25, 200, 1000)
ALL_CHARTS = ({"kind": "shewhart"}, {"kind": "page_hinkley"})


def charts(*, quick: bool = False) -> Iterator[Figure]:
    """The default charts over the grid, and the two others over normal samples."""
    for name in PROCESSES:
        for size in SIZES:
            yield _figure(name, size, quick=quick)
    yield _figure("normal", 1000, quick=quick, label="others", charts=ALL_CHARTS)
    yield _figure("normal", 1000, quick=quick, label="lower", sides="lower")
    # The default; what is simulated is less exact here.
    yield _figure(
        "normal", 1000, quick=quick, label="wanted_10000", in_control_samples=10_000
    )


def _figure(
    name: str, size: int, *, quick: bool, label: str = "", **changes: object
) -> Figure:
    baselines = 10 if quick else BASELINES
    rng = np.random.default_rng([figures.SEED, size])
    settings = chart_runs.settings(
        **{"learn_samples": size, "in_control_samples": WANTED, **changes}
    )
    wanted = settings.in_control_samples
    samples = 200 if quick else SAMPLES if wanted == WANTED else 4 * SAMPLES
    signals = learnt(Process(rng, (baselines,), **PROCESSES[name]), settings)
    process = Process(rng, (baselines, RUNS), **PROCESSES[name])
    truth = true_run_lengths(signals, process, samples)
    shown = np.array([signal.refused == "none" for signal in signals])
    short = truth < wanted
    count = int(shown.sum())
    error = math.sqrt(PROMISED * (1.0 - PROMISED) / count) if count else math.nan
    wrong = float(short[shown].mean()) if count else math.nan
    return {
        "name": ".".join(filter(None, ("honesty.charts", name, str(size), label))),
        "value": round(wrong, 4) if count else None,
        "unit": "share of baselines",
        "goal": PROMISED,
        "ok": not count or wrong <= PROMISED + 2.0 * error,
        "n": baselines,
        "standard_error": round(error, 4) if count else None,
        "absent": round(1.0 - count / baselines, 4),
        "wrong": round(float((short & shown).mean()), 4),
        "short_whether_shown_or_not": round(float(short.mean()), 4),
        "false_alarms_over_wanted": round(float(np.median(wanted / truth)), 3),
        "refused": dict(Counter(signal.refused for signal in signals)),
        "seed": figures.SEED,
        "measured": f"baselines of {size} samples, five minutes apart, whose bound is shown "
        f"and whose mean run length, simulated over {RUNS * samples} samples, is below the "
        f"{wanted:g} of the bound; `absent`: baselines without a bound, `wrong`: with one "
        "that does not hold, `false_alarms_over_wanted`: median over all baselines",
    }
