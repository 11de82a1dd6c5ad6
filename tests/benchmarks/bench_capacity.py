"""Capacity: how often the interval covers the capacity of simulated queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import figures
import numpy as np
from scipy import stats
from simulated_queues import QUEUES, search_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from simulated_queues import Queue


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
