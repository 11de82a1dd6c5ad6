"""Process control: run lengths against published tables, and what learning costs.

Everything is simulated, 10,000 runs a figure, by the code that watches a signal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import figures
import numpy as np

from exporter.golden.loss import LossChart
from exporter.spc import arl
from exporter.spc.charts import Cusum, Ewma, PageHinkley, Shewhart, beyond, limit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from numpy.typing import NDArray

    from exporter.spc.arl import Sides
    from exporter.spc.charts import Chart

RUNS = 10_000
LEARNT_FROM = 500
BATCH = 2_000
LONGEST = 200_000
# Montgomery's tables 9.3 and 9.11, after Lucas and Crosier (1982) and Lucas and
# Saccucci (1990); Shewhart in closed form: chart, limit, shift, samples.
PUBLISHED = (
    ("cusum_h4_in_control", Cusum(0.5), 4.0, 0.0, 168.0),
    ("cusum_h4_one_sigma", Cusum(0.5), 4.0, 1.0, 8.38),
    ("cusum_h5_in_control", Cusum(0.5), 5.0, 0.0, 465.0),
    ("cusum_h5_one_sigma", Cusum(0.5), 5.0, 1.0, 10.4),
    ("cusum_h5_fir_in_control", Cusum(0.5, 0.5), 5.0, 0.0, 430.0),
    ("cusum_h5_fir_one_sigma", Cusum(0.5, 0.5), 5.0, 1.0, 6.35),
    ("ewma_w0.1_in_control", Ewma(0.1), 2.814, 0.0, 500.0),
    ("ewma_w0.1_one_sigma", Ewma(0.1), 2.814, 1.0, 10.3),
    ("ewma_w0.2_in_control", Ewma(0.2), 2.962, 0.0, 500.0),
    ("ewma_w0.2_one_sigma", Ewma(0.2), 2.962, 1.0, 10.5),
    ("shewhart_in_control", Shewhart(), 3.0, 0.0, 370.4),
    ("shewhart_one_sigma", Shewhart(), 3.0, 1.0, 43.9),
    ("page_hinkley_in_control", PageHinkley(0.5), 5.0, 0.0, 465.0),
    ("page_hinkley_one_sigma", PageHinkley(0.5), 5.0, 1.0, 10.4),
)


def published(*, quick: bool = False) -> Iterator[Figure]:
    """Every chart against its table: by its integral equation and by simulation."""
    runs = 1_000 if quick else RUNS
    for name, chart, limit, shift, table in PUBLISHED:
        exact = chart.run_length(limit, shift, "both")
        lengths = run_lengths(chart, limit, "both", runs, shift=shift)
        error = 1.96 * lengths.std() / math.sqrt(runs)
        off = max(abs(exact / table - 1), abs(lengths.mean() / table - 1))
        yield figures.at_most(
            f"spc.{name}.off_the_table",
            100 * off,
            "%",
            3.0,
            measured=f"mean run length at a shift of {shift:g} sigma, limit {limit:g}: "
            f"{exact:.4g} by integral equation, {lengths.mean():.4g} simulated",
            n=runs,
            seed=figures.SEED,
            peer=table,
            peer_name="published table",
            ratio=lengths.mean() / table,
            ci_low=100 * ((lengths.mean() - error) / table - 1),
            ci_high=100 * ((lengths.mean() + error) / table - 1),
        )


def delay(*, quick: bool = False) -> Iterator[Figure]:
    """Delay at a small shift over Lorden's bound, known and learnt from 500 samples.

    The bound is its first order, log(ARL) / KL, which a delay at a finite ARL may stay
    below; the optimum is the delay of the one-sided CUSUM made for this very shift,
    than which nothing is faster in the worst case (Moustakides 1986).
    """
    runs = 1_000 if quick else RUNS
    for shift in (0.25, 0.5):
        wanted = 1_000.0
        chart = Cusum(shift / 2)
        limit = limit_of(chart, wanted, "upper")
        bound = math.log(wanted) / (shift**2 / 2)
        optimum = arl.cusum_one_sided(shift / 2, limit, shift)
        known = run_lengths(chart, limit, "upper", runs, shift=shift)
        learnt = run_lengths(
            chart, limit, "upper", runs, shift=shift, learnt_from=LEARNT_FROM
        )
        for name, found, goal in (("known", known, 1.15), ("learnt", learnt, 1.30)):
            error = 1.96 * found.std() / math.sqrt(runs)
            for peer, value in (("lorden_bound", bound), ("optimum", optimum)):
                yield figures.at_most(
                    f"spc.delay_{shift:g}_sigma.{name}.over_{peer}",
                    found.mean() / value,
                    "ratio",
                    goal,
                    measured=f"mean delay {found.mean():.1f} samples after a shift of "
                    f"{shift:g} sigma, in-control run length {wanted:g}, {name}",
                    n=runs,
                    seed=figures.SEED,
                    peer=value,
                    peer_name=peer,
                    ci_low=(found.mean() - error) / value,
                    ci_high=(found.mean() + error) / value,
                )


def learnt_in_control(*, quick: bool = False) -> Iterator[Figure]:
    """What a baseline of 500 samples does to the false alarms: the honest price.

    The mean learnt is off by sigma / sqrt(500): a chart made for small shifts takes that
    for one of them. `run_length_low` of a status says so for each signal.
    """
    runs = 1_000 if quick else RUNS
    for chart in (
        Cusum(0.5),
        Cusum(0.25),
        Ewma(0.2),
        Shewhart(),
        PageHinkley(0.5, 500),
    ):
        wanted = 500.0
        limit = limit_of(chart, wanted, "both")
        lengths = run_lengths(chart, limit, "both", runs, learnt_from=LEARNT_FROM)
        early = float(np.mean(lengths < wanted / 10))
        yield figures.at_most(
            f"spc.learnt_in_control.{chart.kind}_{_setting(chart)}.early_alarms",
            100 * early,
            "%",
            None,
            measured=f"runs with a false alarm within a tenth of the wanted {wanted:g} "
            f"samples; without error 9.5 %. Mean run length {lengths.mean():.0f}",
            n=runs,
            seed=figures.SEED,
            peer=100 * (1 - math.exp(-0.1)),
            peer_name="parameters known",
            ci_low=100 * (early - 1.96 * math.sqrt(early * (1 - early) / runs)),
            ci_high=100 * (early + 1.96 * math.sqrt(early * (1 - early) / runs)),
        )


def accuracy_loss(*, quick: bool = False) -> Iterator[Figure]:
    """A loss of two points of accuracy: delay in samples over the bound, at the ARL held."""
    runs = 1_000 if quick else RUNS
    rng = np.random.default_rng(figures.SEED)
    for accuracy in (0.97, 0.9):
        chart = LossChart.of(accuracy, 0.02, 20_000.0)
        failing = 1 - accuracy
        held = _loss_lengths(chart, failing, runs, rng)
        yield figures.at_most(
            f"golden.loss_from_{accuracy:g}.wanted_over_held_run_length",
            chart.wanted_arl / held.mean(),
            "ratio",
            1.03,
            measured=f"false alarms of the golden loss chart: every {held.mean():.0f} "
            "samples where the accuracy stays",
            n=runs,
            seed=figures.SEED,
        )
        found = _loss_lengths(chart, failing + 0.02, runs, rng)
        divergence = _bernoulli_divergence(failing + 0.02, failing)
        bound = math.log(chart.wanted_arl) / divergence
        error = 1.96 * found.std() / math.sqrt(runs)
        yield figures.at_most(
            f"golden.loss_from_{accuracy:g}.delay_over_bound",
            found.mean() / bound,
            "ratio",
            1.15,
            measured=f"{found.mean():.0f} samples until a loss of 2 points is told; "
            f"log(ARL) / KL is {bound:.0f}",
            n=runs,
            seed=figures.SEED,
            ci_low=(found.mean() - error) / bound,
            ci_high=(found.mean() + error) / bound,
        )


def run_lengths(
    chart: Chart,
    limit: float,
    sides: Sides,
    runs: int,
    *,
    shift: float = 0.0,
    learnt_from: int = 0,
) -> NDArray[np.float64]:
    """Samples until the chart speaks, by run. Learnt: each run has its own baseline."""
    rng = np.random.default_rng(figures.SEED)
    lengths = np.zeros(runs)
    for begin in range(0, runs, BATCH):
        count = min(BATCH, runs - begin)
        alive = np.arange(begin, begin + count)
        mean, sigma = np.zeros(count), np.ones(count)
        if learnt_from:
            # The mean and deviation of so many normal samples, drawn as such.
            mean = rng.normal(0, 1 / math.sqrt(learnt_from), count)
            freedom = learnt_from - 1
            sigma = np.sqrt(rng.chisquare(freedom, count) / freedom)
        memory = chart.fresh(limit, (count,))
        for _ in range(LONGEST):
            z = (rng.normal(shift, 1, alive.size) - mean) / sigma
            memory = chart.step(memory, z, limit)
            lengths[alive] += 1
            quiet = ~beyond(chart, memory, limit, sides)
            alive, memory = alive[quiet], memory[:, quiet]
            mean, sigma = mean[quiet], sigma[quiet]
            if not alive.size:
                break
    return lengths


def _loss_lengths(
    chart: LossChart, failing: float, runs: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    level = np.zeros(runs, np.int64)
    lengths = np.zeros(runs)
    alive = np.arange(runs)
    while alive.size:
        failed = rng.random(alive.size) < failing
        level = np.maximum(0, level + np.where(failed, chart.up, -chart.down))
        lengths[alive] += 1
        quiet = level < chart.limit
        alive, level = alive[quiet], level[quiet]
    return lengths


def _bernoulli_divergence(after: float, before: float) -> float:
    return after * math.log(after / before) + (1 - after) * math.log(
        (1 - after) / (1 - before)
    )


def _setting(chart: Chart) -> str:
    for name in ("reference", "weight", "delta"):
        if hasattr(chart, name):
            return f"{getattr(chart, name):g}"
    return "1"
