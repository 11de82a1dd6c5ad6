"""How many samples a chart runs before it speaks: the average run length (ARL).

In control it is what a false alarm costs, after a shift it is the delay. Integral
equations are solved at Gauss-Legendre nodes (Nyström), which is exact to far more digits
than any table: Crowder (1987) and Lucas and Saccucci (1990) for EWMA, Page (1954), Goel
and Wu (1971) and Lucas and Crosier (1982) for CUSUM. Samples are independent normal with
standard deviation 1; `shift` is their mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from exporter.numerics import normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.numerics.normal import Floats

Sides = Literal["both", "upper", "lower"]

_LEAST_NODES: Final = 48
_NODES_PER_SIGMA: Final = 5.0
_MOST_NODES: Final = 400
_FAR_SIGMA: Final = 9.0
_HALVINGS: Final = 60
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
    # A one-sided chart has no floor; what lies so far down comes back or never did.
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


def cusum_one_sided(
    reference: float, limit: float, shift: float = 0.0, start: float = 0.0
) -> float:
    """ARL of S = max(0, S + z - k), which speaks above `limit`, from S = `start`."""
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
    return float(1.0 + kernel[-1] @ inside)


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
        return cusum_one_sided(reference, limit, towards, start)
    upper, lower = (cusum_one_sided(reference, limit, s) for s in (shift, -shift))
    if start == 0:
        return 1.0 / (1.0 / upper + 1.0 / lower)
    upper_started, lower_started = (
        cusum_one_sided(reference, limit, s, start) for s in (shift, -shift)
    )
    return (upper_started * lower + lower_started * upper - upper * lower) / (
        upper + lower
    )


def bernoulli_cusum(
    failure: float, steps: tuple[int, int], limit: int, start: int = 0
) -> float:
    """ARL of S = max(0, S + up) after a failure, max(0, S - down) after a success.

    `steps` is (up, down) in whole units, which makes it a Markov chain and this exact
    (Reynolds and Stoumbos 1999); it speaks at S >= `limit`.
    """
    up, down = steps
    states = np.arange(limit)
    moves = np.zeros((limit, limit))
    fallen = np.maximum(states - down, 0)
    moves[states, fallen] += 1.0 - failure
    risen = states + up
    stays = risen < limit
    moves[states[stays], risen[stays]] += failure
    runs = np.linalg.solve(np.eye(limit) - moves, np.ones(limit))
    return float(runs[start])


def limit_for(run_length: Callable[[float], float], wanted: float) -> float:
    """The limit at which an increasing ARL is `wanted`, to seven digits.

    Raises:
        ValueError: `wanted` is not above 1, or no limit up to 1,000 gives it.
    """
    if not wanted > 1:
        raise ValueError(f"found an average run length of {wanted:g}; want above 1")
    low, high = 0.0, 1.0
    # In small steps: far beyond the limit no equation can be solved in 53 bits.
    while _known(run_length(high)) < wanted:
        low, high = high, _GROWTH * high
        if high > _HIGHEST_LIMIT:
            raise ValueError(f"no limit gives an average run length of {wanted:g}")
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _known(run_length(middle)) < wanted:
            low = middle
        else:
            high = middle
        if high - low < _TOLERANCE * high:
            break
    return 0.5 * (low + high)


def _known(length: float) -> float:
    """A run length beyond what the solution can hold comes out as nonsense."""
    return length if length > 0 else math.inf


def _nodes(low: float, high: float, width_sigma: float) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on [low, high], close enough for the kernel."""
    wanted = math.ceil(_NODES_PER_SIGMA * width_sigma)
    count = min(max(_LEAST_NODES, wanted), _MOST_NODES)
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = 0.5 * (high - low)
    return low + half * (nodes + 1.0), half * weights
