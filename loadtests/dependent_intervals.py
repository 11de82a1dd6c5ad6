"""Figures of one run, with intervals for requests that depend on each other.

Requests of one run share queues, batches and slow spells, so that n of them carry less
information than n independent ones. The loss is measured for each figure from the run's own
requests in order (`drift.numerics.dependence`). Where that cannot be measured, or too few
effective requests are left, the figure is not decided and the reason is given.

References:
    G. Y. Zou, A. Donner, Construction of confidence limits about effect measures: a
    general approach, Statistics in Medicine 27 (2008) 1693-1702: the interval of a
    difference from the intervals of its two sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from drift.numerics import normal
from drift.numerics.dependence import (
    LEAST_BATCHES,
    LEAST_FREEDOM,
    sequence_inflation,
)
from exporter.histograms.quantiles import interval_ranks
from loadtests.result import quantile_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.result import Floats


@dataclass(frozen=True, slots=True)
class Side:
    """A figure of one run with the ends of its interval, or the reason for none."""

    value: float
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    effective_requests: float = 0.0
    """Number of independent requests that give as wide an interval; 0 where unknown."""


def _worth(events: NDArray[np.bool_], confidence: float) -> tuple[float, str]:
    """Return the effective number of independent requests, or why it is unknown."""
    if events.size < LEAST_BATCHES:
        return 0.0, f"too few requests ({events.size}); make it longer"
    found = sequence_inflation(events.astype(np.float64))
    if found is None:
        return 0.0, "requests are correlated for too much of the run; make it longer"
    if found.freedom < LEAST_FREEDOM:
        return 0.0, "a few slow spells make up the variance; make it longer"
    return found.effective_samples(events.size, confidence), ""


def quantile_side(waits: Floats, q: float, confidence: float) -> Side:
    """The q-quantile of `waits` (N,), in order of time; infinite ones are misses."""
    value = quantile_of(waits, q)
    # Waits equal to the quantile, like those of one batch, may count as above it or not.
    counted = (_worth(waits > value, confidence), _worth(waits >= value, confidence))
    worth, reason = min(counted)
    if reason:
        return Side(value, reason=reason)
    ranks = interval_ranks(waits.size, q, confidence, worth)
    if ranks is None:
        return Side(
            value,
            reason=f"{waits.size} requests are worth {worth:.0f} independent ones, "
            "which are too few; make it longer",
            effective_requests=worth,
        )
    low, high = math.floor(ranks[0]) - 1, min(math.ceil(ranks[1]), waits.size) - 1
    ordered = np.partition(waits, (low, high))
    ends = float(ordered[low]), float(ordered[high])
    return Side(value, *ends, effective_requests=worth)


def supported_quantile(
    waits: Floats, q: float, confidence: float = 0.95
) -> Side | None:
    """The q-quantile as `quantile_side` has it; None of too few `waits` (N,) for it."""
    if interval_ranks(waits.size, q, confidence, waits.size) is None:
        return None
    return quantile_side(waits, q, confidence)


def missed_side(waits: Floats, confidence: float) -> Side:
    """The share of `waits` (N,) that are infinite, by Wilson's interval."""
    missed = ~np.isfinite(waits)
    share = float(missed.mean()) if waits.size else 0.0
    worth, reason = _worth(missed, confidence)
    if reason:
        return Side(share, reason=reason)
    low, high = normal.share_interval(share, worth, confidence)
    ends = min(low, share), max(high, share)
    return Side(share, *ends, effective_requests=worth)


def difference(before: Side, after: Side) -> tuple[float, float]:
    """Ends of the interval of `after` less `before` (Zou and Donner)."""
    middle = after.value - before.value
    down = math.hypot(after.value - after.low, before.high - before.value)
    up = math.hypot(after.high - after.value, before.value - before.low)
    return middle - down, middle + up


def logarithm(side: Side) -> Side:
    """Return the side of the logarithm of a positive figure."""
    return Side(math.log(side.value), math.log(side.low), math.log(side.high))
