"""Many comparisons at once, each looked at after every pair, as arrays over the runs.

The same statistics as exporter/features/comparison, written for a whole array of runs and one
question: does the interval still hold "no difference"? tests/exporter/features/comparison holds
the two against each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from exporter.features.comparison.confidence import WARM_UP_PAIRS, boundary
from exporter.features.comparison.quantile_ratio import MIXTURE_DISCORDANT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Draw = Callable[[np.random.Generator, tuple[int, int]], tuple[Floats, Floats]]
    """(champion, challenger) of that shape: runs and pairs."""

_BINS = 1024
_CHUNK = 250
_SMALL_CHUNK = 50


@dataclass(frozen=True)
class Plan:
    """So many runs of so many pairs, from a seed."""

    runs: int
    pairs: int
    seed: int
    alpha: float = 0.05


def boundaries(most: int, alpha: float, mixture: float) -> Floats:
    """boundary(n) sqrt(n) for n from 0 to `most`."""
    return np.array(
        [math.inf]
        + [
            boundary(n, alpha, mixture=mixture) * math.sqrt(n)
            for n in range(1, most + 1)
        ]
    )


def mean_decisions(plan: Plan, draw: Draw) -> NDArray[np.int64]:
    """After how many pairs each run calls the means different; 0 for never."""
    rng = np.random.default_rng(plan.seed)
    total, squares = np.zeros(plan.runs), np.zeros(plan.runs)
    decided = np.zeros(plan.runs, np.int64)
    limits = boundaries(plan.pairs, plan.alpha, 100.0)
    limits /= np.sqrt(np.maximum(np.arange(plan.pairs + 1), 1))
    for start in range(0, plan.pairs, _CHUNK):
        x, y = draw(rng, (plan.runs, min(_CHUNK, plan.pairs - start)))
        walk = total[:, None] + np.cumsum(y - x, axis=1)
        spread = np.sqrt(squares[:, None] + np.cumsum((y - x) ** 2, axis=1))
        counts = np.arange(start + 1, start + 1 + x.shape[1])
        out = (np.abs(walk) > limits[counts] * spread) & (counts >= WARM_UP_PAIRS)
        _note(decided, out, start)
        total, squares = walk[:, -1], spread[:, -1] ** 2
    return decided


def variance_decisions(plan: Plan, draw: Draw) -> NDArray[np.int64]:
    """After how many pairs each run calls the variances different; 0 for never.

    Squared deviations from a mean that moves with every pair, so their sums and the
    sums of their squares come from the running sums of powers and products.
    """
    rng = np.random.default_rng(plan.seed)
    sums = np.zeros((10, plan.runs))
    decided = np.zeros(plan.runs, np.int64)
    limits = boundaries(plan.pairs, plan.alpha, 100.0)
    limits /= np.sqrt(np.maximum(np.arange(plan.pairs + 1), 1))
    for start in range(0, plan.pairs, _SMALL_CHUNK):
        x, y = draw(rng, (plan.runs, min(_SMALL_CHUNK, plan.pairs - start)))
        d = y * y - x * x
        terms = (x, y, x * x, y * y, x**3, x**4, d * d, d * x, d * y, x * y)
        walks = sums[:, :, None] + np.cumsum(terms, axis=2)
        counts = np.arange(start + 1, start + 1 + x.shape[1])
        moved, spread, known = _deviations(walks, counts, limits[counts])
        out = known & (np.abs(moved) > limits[counts] * spread)
        _note(decided, out & (counts >= WARM_UP_PAIRS), start)
        sums = walks[:, :, -1]
    return decided


def _deviations(
    walks: Floats, n: NDArray[np.int64], limits: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Of u and v, the squared deviations of x and y: sum of v - u, the root of the sum of
    its squares, and whether the sum of u is told from zero."""
    s_x, s_y, s_xx, s_yy, s_x3, s_x4, s_dd, s_dx, s_dy, s_xy = walks
    x, y = s_x / n, s_y / n
    c = y * y - x * x
    u, v = s_xx - n * x * x, s_yy - n * y * y
    uu = s_x4 - 4 * x * s_x3 + 6 * x * x * s_xx - 3 * n * x**4
    squares = (
        s_dd
        + 4 * y * y * s_yy
        + 4 * x * x * s_xx
        + n * c * c
        - 4 * y * s_dy
        + 4 * x * s_dx
        + 2 * c * (s_yy - s_xx)
        - 8 * x * y * s_xy
        - 4 * y * c * s_y
        + 4 * x * c * s_x
    )
    return v - u, np.sqrt(np.maximum(squares, 0)), u * u > limits**2 * uu


def difference_decisions(plan: Plan, gain: float, loss: float) -> NDArray[np.int64]:
    """After how many pairs each run calls two accuracies different; 0 for never.

    At a difference of zero the profile has a closed form: both shares are half of what
    was gained and lost.
    """
    rng = np.random.default_rng(plan.seed)
    gains, losses = np.zeros(plan.runs, np.int64), np.zeros(plan.runs, np.int64)
    decided = np.zeros(plan.runs, np.int64)
    gamma = np.array([math.lgamma(n + 0.5) for n in range(plan.pairs + 2)])
    whole = np.array([math.lgamma(n + 1.5) for n in range(plan.pairs + 2)])
    start_value = math.lgamma(1.5) - 3 * math.lgamma(0.5) + math.log(plan.alpha)
    for start in range(0, plan.pairs, _CHUNK):
        shape = (plan.runs, min(_CHUNK, plan.pairs - start))
        drawn = rng.random(shape)
        won = gains[:, None] + np.cumsum(drawn < gain, axis=1)
        lost = losses[:, None] + np.cumsum(
            (drawn >= gain) & (drawn < gain + loss), axis=1
        )
        counts = np.arange(start + 1, start + 1 + shape[1])
        same, moved = counts - won - lost, won + lost
        mixture = start_value - whole[counts] + gamma[won] + gamma[lost] + gamma[same]
        best = _xlogx(moved, moved / (2 * counts)) + _xlogx(same, same / counts)
        _note(decided, best <= mixture, start)
        gains, losses = won[:, -1], lost[:, -1]
    return decided


def _xlogx(counts: NDArray[np.int64], shares: Floats) -> Floats:
    return counts * np.log(np.where(counts > 0, shares, 1.0))


def quantile_decisions(
    plan: Plan, q: float, draw: Draw, at_least: float, at_most: float
) -> NDArray[np.int64]:
    """After how many pairs each run calls the two quantiles different; 0 for never.

    Values are held in bins between `at_least` and `at_most`, which must enclose the
    joint quantile's way; what lies outside is counted in the end bins.
    """
    rng = np.random.default_rng(plan.seed)
    state = _Beyond(plan.runs, q)
    decided = np.zeros(plan.runs, np.int64)
    limits = boundaries(2 * plan.pairs, plan.alpha, MIXTURE_DISCORDANT)
    scale = (_BINS - 1) / (at_most - at_least)
    for start in range(0, plan.pairs, _CHUNK):
        pair = draw(rng, (plan.runs, min(_CHUNK, plan.pairs - start)))
        x, y = (
            np.clip((v - at_least) * scale, 0, _BINS - 1).astype(np.int16).T.copy()
            for v in pair
        )
        for step in range(len(x)):
            state.add(x[step], y[step])
            out = (np.abs(state.lead) >= limits[state.discordant]) & (decided == 0)
            decided[out] = start + step + 1
    return decided


class _Beyond:
    """Who is beyond the joint quantile, in every run; the quantile moves in bins."""

    def __init__(self, runs: int, q: float) -> None:
        self._q = q
        self._pairs = 0
        self._rows = np.arange(runs)
        # Per bin: champion's, challenger's, and the lesser of each pair.
        self._counts = np.zeros((3, runs, _BINS), np.int32)
        self._place = np.full(runs, _BINS - 1)
        self._beyond = np.zeros((3, runs), np.int64)

    @property
    def lead(self) -> NDArray[np.int64]:
        return self._beyond[1] - self._beyond[0]

    @property
    def discordant(self) -> NDArray[np.int64]:
        return self._beyond[0] + self._beyond[1] - 2 * self._beyond[2]

    def add(self, x: NDArray[np.int16], y: NDArray[np.int16]) -> None:
        self._pairs += 1
        for kind, values in enumerate((x, y, np.minimum(x, y))):
            self._counts[kind, self._rows, values] += 1
            self._beyond[kind] += values > self._place
        # As many of both beyond it as the exact joint quantile would have.
        wanted = 2 * self._pairs - math.ceil(self._q * 2 * self._pairs)
        while True:
            both = self._beyond[0] + self._beyond[1]
            here = self._counts[:2, self._rows, self._place].sum(axis=0)
            down = (both + here <= wanted) & (self._place > 0)
            up = both > wanted
            if not (down.any() or up.any()):
                return
            rows = np.flatnonzero(down)
            self._beyond[:, rows] += self._counts[:, rows, self._place[rows]]
            self._place[rows] -= 1
            rows = np.flatnonzero(up)
            self._place[rows] += 1
            self._beyond[:, rows] -= self._counts[:, rows, self._place[rows]]


def _note(decided: NDArray[np.int64], out: NDArray[np.bool_], start: int) -> None:
    first = np.where(out.any(axis=1), start + 1 + out.argmax(axis=1), 0)
    decided[:] = np.where(decided == 0, first, decided)


def lognormal_quantile_pairs(
    q: float, sigma: float, ratio: float, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Pairs that the best test of fixed size needs to see `ratio` at that quantile.

    The two sample quantiles' difference, with the densities known: n = (z_{1-alpha/2} +
    z_power)^2 q (1 - q) (1/f_x^2 + 1/f_y^2) / difference^2 for independent lognormals.
    """
    normal = NormalDist()
    z = normal.inv_cdf(q)
    value = math.exp(sigma * z)
    density = normal.pdf(z) / (sigma * value)
    reach = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    spread = q * (1 - q) * (1 + ratio**2) / density**2
    return reach**2 * spread / (value * (ratio - 1)) ** 2
