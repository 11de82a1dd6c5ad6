"""Average run length (ARL) of control charts: samples until an alarm.

In control it is what a false alarm costs, after a shift it is the delay. Integral
equations are solved at Gauss-Legendre nodes (Nyström), which is exact to far more digits
than any table: Crowder (1987) and Lucas and Saccucci (1990) for EWMA, Page (1954), Goel
and Wu (1971) and Lucas and Crosier (1982) for CUSUM. Samples are independent normal with
standard deviation 1; `shift` is their mean.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from drift.numerics import normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from drift.numerics.normal import Floats

Sides = Literal["both", "upper", "lower"]

LONGEST: Final = 1e12
"""Longest run length; longer ones are not distinguished."""
_LEAST_NODES: Final = 48
_NODES_PER_SIGMA: Final = 5.0
_MOST_NODES: Final = 400
_FAR_SIGMA: Final = 9.0
_GROWTH: Final = 1.25
_HIGHEST_LIMIT: Final = 1_000.0
_TOLERANCE: Final = 1e-7


def shewhart(limit: float, shift: float = 0.0, sides: Sides = "both") -> float:
    """1 / P(beyond the limit)."""
    upper, lower = normal.above(limit - shift), normal.above(limit + shift)
    share = {"both": upper + lower, "upper": upper, "lower": lower}[sides]
    return math.inf if share == 0 else 1.0 / share


def ewma(
    weight: float, limit: float, shift: float = 0.0, sides: Sides = "both"
) -> float:
    """ARL of E = (1 - w) E + w z with limits at `limit` of E's own standard deviations.

    The deviation is the asymptotic one, sqrt(w / (2 - w)); E starts at 0.
    """
    if sides == "lower":
        return ewma(weight, limit, -shift, "upper")
    sigma = math.sqrt(weight / (2.0 - weight))
    high = limit * sigma
    # A one-sided chart has no floor; values this far down do not matter.
    low = -high if sides == "both" else min(shift, 0.0) - _FAR_SIGMA * sigma
    nodes, weights = _nodes(low, high, (high - low) / weight)
    before = (1.0 - weight) * np.append(nodes, 0.0)
    kernel = (
        weights
        / weight
        * normal.density((nodes[None, :] - before[:, None]) / weight - shift)
    )
    inside = np.linalg.solve(
        np.eye(nodes.size) - kernel[:-1], np.ones(nodes.size, np.float64)
    )
    return float(1.0 + kernel[-1] @ inside)


def _cusum_one_sided(
    reference: float, limit: float, shift: float, start: float
) -> tuple[float, float]:
    """ARL of S = max(0, S + z - k), which speaks above `limit`, from 0 and from `start`."""
    nodes, weights = _nodes(0.0, limit, limit)
    points = np.concatenate([[0.0], nodes, [start]])
    drift = reference - shift
    kernel = np.empty((points.size, points.size - 1))
    # Column 0: to be thrown back to zero, where probability sits as a lump.
    kernel[:, 0] = normal.below(drift - points)
    kernel[:, 1:] = weights * normal.density(nodes[None, :] + drift - points[:, None])
    inside = np.linalg.solve(
        np.eye(points.size - 1) - kernel[:-1], np.ones(points.size - 1, np.float64)
    )
    return float(inside[0]), float(1.0 + kernel[-1] @ inside)


def cusum(
    reference: float,
    limit: float,
    shift: float = 0.0,
    *,
    head_start: float = 0.0,
    sides: Sides = "both",
) -> float:
    """ARL of a CUSUM; a head start is a share of the limit (0.5: fast initial response).

    Two sides: Lucas and Crosier (1982), right while the head start is at most one half,
    so that never both sides are up.
    """
    start = head_start * limit
    if sides != "both":
        towards = shift if sides == "upper" else -shift
        return _cusum_one_sided(reference, limit, towards, start)[1]
    upper, upper_started = _cusum_one_sided(reference, limit, shift, start)
    lower, lower_started = _cusum_one_sided(reference, limit, -shift, start)
    return (upper_started * lower + lower_started * upper - upper * lower) / (
        upper + lower
    )


def bernoulli_limit(
    failure: float, up: int, wanted: float, highest: int
) -> tuple[int, float]:
    """The least limit at which a CUSUM of failures runs `wanted` samples, and how many.

    S = max(0, S + up) after a failure, max(0, S - 1) after a success; it speaks at
    S >= limit (Reynolds and Stoumbos 1999). It falls by single steps: from a state d below
    the limit it reaches the one underneath, before it speaks, with a probability that
    depends on d alone, as does the time that takes. So one pass over d is exact for every
    limit, and only adds what is positive. Beyond `highest` it is not sought.
    """
    # Logarithm of that probability, and samples until then or until it speaks.
    falls, took = np.zeros(highest + 1), np.ones(highest + 1)
    falls[: up + 1] = math.log1p(-failure)
    limit, length = 1, 1.0 / failure
    while limit < highest and length < wanted:
        limit += 1
        if limit <= up:
            continue
        window = slice(limit - up, limit)
        reached = np.cumsum(falls[window])
        spoken = -math.expm1(reached[-1])
        passed = 1.0 + failure * float(took[window] @ np.exp(reached - falls[window]))
        length = passed / (failure * spoken)
        again = 1.0 - failure + failure * spoken
        falls[limit] = math.log1p(-failure * spoken / again)
        took[limit] = passed / again
    return limit, length


def limit_for(
    run_length: Callable[[float], float],
    wanted: float,
    *,
    lowest: float = 0.0,
    highest: float = _HIGHEST_LIMIT,
    tolerance: float = _TOLERANCE,
) -> float:
    """The limit at which an increasing ARL is `wanted`, from `lowest` on.

    Raises:
        ValueError: `wanted` is not above 1, or no limit up to `highest` gives it.
    """
    if not wanted > 1:
        raise ValueError(f"found an average run length of {wanted:g}; want above 1")
    low, high = lowest, lowest or 1.0
    # In small steps: far beyond the limit no equation can be solved in 53 bits.
    while known(run_length(high)) < wanted:
        low, high = high, _GROWTH * high
        if low >= highest:
            raise ValueError(f"no limit gives an average run length of {wanted:g}")
    while high - low > tolerance * high:
        middle = 0.5 * (low + high)
        if known(run_length(middle)) < wanted:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def known(length: float) -> float:
    """Return the run length, at most `LONGEST`, which also stands for invalid solutions."""
    return min(length, LONGEST) if length > 0 else LONGEST


def _nodes(low: float, high: float, width_sigma: float) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on [low, high], close enough for the kernel."""
    wanted = math.ceil(_NODES_PER_SIGMA * width_sigma)
    count = min(max(_LEAST_NODES, wanted), _MOST_NODES)
    nodes, weights = _gauss(count)
    half = 0.5 * (high - low)
    return low + half * (nodes + 1.0), half * weights


@functools.lru_cache(maxsize=64)
def _gauss(count: int) -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(count)
