"""The highest rate that holds an objective, and how far that can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import stats

from loadtests.capacity.isotonic import crossing, pooled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from loadtests.capacity.observation import Observation

    Floats = NDArray[np.float64]

RESAMPLES: Final = 500
_NEAR: Final = 10.0  # levels whose share is within this factor of what is allowed
_MOST_SHARE: Final = 0.3
_LEAST_BLOCKS: Final = 4
_NONE_SEEN: Final = 0.25  # misses that stand for "none in so many requests"
_BLOCKS_A_RUN: Final = 2


@dataclass(frozen=True, slots=True)
class Levels:
    """All runs of a search, by rate.

    `rates` (L,) rise; `counts` (L,) and `misses` (L, K) are sums over runs; each block
    (B,) belongs to the level `level` (B,), with `block_counts` (B,), `block_misses`
    (B, K).
    """

    rates: Floats
    counts: Floats
    misses: Floats
    level: NDArray[np.int64]
    block_counts: Floats
    block_misses: Floats

    @classmethod
    def of(cls, runs: Sequence[Observation]) -> Levels:
        """The runs, each cut into two blocks."""
        rates = np.unique([run.rate for run in runs])
        level, counts, misses = [], [], []
        for run in runs:
            cuts = np.linspace(0, run.counts.size, _BLOCKS_A_RUN + 1).astype(int)
            for low, high in pairwise(cuts):
                held = float(run.counts[low:high].sum())
                if held:
                    level.append(int(np.searchsorted(rates, run.rate)))
                    counts.append(held)
                    misses.append(run.misses[low:high].sum(axis=0))
        place, heavy = np.array(level), np.array(counts)
        missed = np.array(misses)
        return cls(
            rates=rates,
            counts=np.bincount(place, heavy, rates.size).astype(np.float64),
            misses=_by_level(place, missed, rates.size),
            level=place,
            block_counts=heavy,
            block_misses=missed,
        )

    def fitted(self, misses: Floats) -> Floats:
        """Never-falling shares (L, K) for the sums of misses (L, K)."""
        return np.stack(
            [pooled(column / self.counts, self.counts) for column in misses.T], axis=1
        )

    def capacity(self, misses: Floats, allowed: Floats) -> Floats:
        """The rate at which each term (K,) is reached."""
        shares, floor = self.fitted(misses), _NONE_SEEN / self.counts
        return np.array(
            [
                crossing(self.rates, shares[:, k], floor, float(allowed[k]))
                for k in range(allowed.size)
            ]
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Requests a second; `low` and `high` are the ends of the interval.

    `high` is infinite where no rate was high enough, `low` 0 where none was low enough,
    and both where there are too few runs near the boundary to tell.
    """

    rate: float
    low: float
    high: float
    by_term: tuple[float, ...]
    """The rate at which each term alone would be reached."""
    dispersion: float | None
    """Variance of the misses of a block over that of independent requests."""
    blocks: int
    """Blocks near the boundary, of which the interval is made."""

    @property
    def width_ratio(self) -> float:
        """Half the interval over the estimate."""
        if not 0 < self.rate < np.inf:
            return np.inf
        return (self.high - self.low) / (2 * self.rate)


def estimate(
    runs: Sequence[Observation],
    allowed: Floats,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Estimate:
    """The rate at which the worst of the terms reaches its allowed share.

    Shares are fitted never to fall with the rate, their logarithm is linear between
    rates. The interval is a residual block bootstrap: each block's misses are taken as
    fitted + sqrt(fitted) e, the e of all blocks near the boundary are drawn anew with
    replacement, and the fit is made again. A block is half a run, longer than a
    server's memory of its queue; a request is not, since near saturation its neighbours
    wait in the same queue and the variance is up to a hundred times the binomial one.
    Pooling the e over levels is what makes a few runs of each enough. They are widened
    by sqrt(B / (B - L + 1)) for the L levels fitted, and the interval by Student's t of
    B / 2 - L degrees of freedom over the normal quantile: halves of a run are not quite
    independent.
    """
    levels = Levels.of(runs)
    by_term = levels.capacity(levels.misses, allowed)
    rate = float(by_term.min())
    shares = np.maximum(
        levels.fitted(levels.misses), _NONE_SEEN / levels.counts[:, None]
    )
    near = _near(shares, allowed)[levels.level]
    blocks = int(near.sum())
    if blocks < _LEAST_BLOCKS or not 0 < rate < np.inf:
        return Estimate(rate, 0.0, np.inf, tuple(by_term), None, blocks)
    expected = shares[levels.level] * levels.block_counts[:, None]
    residuals = ((levels.block_misses - expected) / np.sqrt(expected))[near]
    fitted = np.unique(levels.level[near]).size
    residuals *= np.sqrt(blocks / max(blocks - fitted + 1, 2))
    freedom = max(blocks // _BLOCKS_A_RUN - fitted, 2)
    logs = np.empty(resamples)
    for i in range(resamples):
        drawn = residuals[rng.integers(0, blocks, levels.level.size)]
        misses = np.maximum(expected + np.sqrt(expected) * drawn, 0.0)
        found = levels.capacity(
            _by_level(levels.level, misses, levels.rates.size), allowed
        )
        logs[i] = np.log(np.clip(found.min(), *_limits(levels.rates)))
    tail = (1.0 - confidence) / 2
    wider = stats.t.ppf(1 - tail, freedom) / stats.norm.ppf(1 - tail)
    low, high = np.quantile(logs, (tail, 1 - tail)) - np.log(rate)
    ends = rate * np.exp(np.array([min(low, 0.0), max(high, 0.0)]) * wider)
    return Estimate(
        rate=rate,
        low=float(ends[0]),
        high=float(ends[1]),
        by_term=tuple(by_term.tolist()),
        dispersion=float(np.mean(residuals[:, int(by_term.argmin())] ** 2)),
        blocks=blocks,
    )


def _near(shares: Floats, allowed: Floats) -> NDArray[np.bool_]:
    """Levels (L,) at which some term is near its limit."""
    most = np.minimum(allowed * _NEAR, np.maximum(_MOST_SHARE, allowed * 1.5))
    inside = (shares > allowed / _NEAR) & (shares < most)
    return np.asarray(inside.any(axis=1), np.bool_)


def _limits(rates: Floats) -> tuple[float, float]:
    return float(rates[0]) / 2, float(rates[-1]) * 2


def _by_level(level: NDArray[np.int64], values: Floats, levels: int) -> Floats:
    """Sums (L, K) of what each block (B, K) has."""
    return np.stack([np.bincount(level, column, levels) for column in values.T], axis=1)
