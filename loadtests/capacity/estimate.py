"""Estimates the highest rate that meets an objective, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import optimize

from drift.numerics import dependence
from loadtests.capacity.miss_trend import trend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from loadtests.capacity.observation import Observation

    Floats = NDArray[np.float64]

RESAMPLES: Final = 500
_CONFIDENCE: Final = 0.95
_NEAR: Final = 1.3  # levels within this factor of the boundary make the trend
_MOST_FACTOR: Final = 8.0  # times what is allowed; more is far into overload
_MOST_SHARE: Final = 3.0  # misses of a run that may be chance, for any allowed share
_LEAST_LEVELS: Final = 3
_LINE_BLOCKS: Final = 8.0  # blocks of a level that weigh as much as the line
_LEAST_BLOCKS: Final = 10
_ENOUGH_BLOCKS: Final = 30
_NONE_SEEN: Final = 0.25  # misses that stand for "none in N requests" ...
_NONE_SHARE: Final = 0.25  # ... and never more than this of what is allowed
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
        """Return the levels of the runs, each run cut into two blocks."""
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
        """Return non-decreasing shares (L, K) for the sums of misses (L, K)."""
        return np.stack(
            [never_falling(column / self.counts, self.counts) for column in misses.T],
            axis=1,
        )

    def capacity(self, misses: Floats, allowed: Floats) -> Floats:
        """Return the rate at which each term (K,) is reached."""
        shares, floors = self.fitted(misses), self.floors(allowed)
        return np.array(
            [
                crossing(self.rates, shares[:, k], floors[:, k], float(allowed[k]))
                for k in range(allowed.size)
            ]
        )

    def floors(self, allowed: Floats) -> Floats:
        """Return shares (L, K) that stand for no miss, by the allowed shares (K,).

        A level too short to have shown what is allowed has not missed it: 0.25 of 150
        requests would be more than 0.1 %.
        """
        return np.minimum(
            (_NONE_SEEN / self.counts)[:, None], _NONE_SHARE * allowed[None, :]
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Requests a second; `low` and `high` are the ends of the interval.

    `high` is infinite where no rate was high enough, `low` 0 where none was low enough,
    and both where there are too few runs near the boundary.
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
    memory_seconds: float | None = None
    """Time for which misses stay correlated; None where it is too long to be measured."""
    freedom: float = 0.0
    """Degrees of freedom of the variance of misses; about the number of bursts where few
    bursts make up all misses."""
    effective_requests: float | None = None
    """Independent requests near the boundary that would give as wide an interval."""

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
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return the rate at which the worst of the terms reaches its allowed share.

    An isotonic fit finds the boundary of each term; about it (within a factor of 1.3)
    a straight line of the logarithm of the share over that of the rate is fitted by
    quasi-likelihood. The logarithm of each level's share is drawn towards the line, by
    as much as eight blocks weigh, and where these shares reach what is allowed is the
    estimate: with few runs the line counts, with many the levels.

    The interval is a residual block bootstrap: each block's misses are taken as
    share + sqrt(share) e, the e of all blocks near the boundary are drawn anew with
    replacement, and the isotonic fit is made again. A block is half a run, longer than
    a server's memory of its queue; a request is not, since near saturation its
    neighbours wait in the same queue and the variance is up to a hundred times the
    binomial one. Drawing shares towards the line and pooling the e over levels is what
    makes a few runs of each enough: a level that by luck saw no miss would otherwise
    claim to vary little. They are widened by sqrt(B / (B - 2)), and the interval by Student's t
    of B / 2 - 2 degrees of freedom over the normal quantile. Where the rate above the
    estimate is far into overload the share is not known to be exponential in between: the
    interval reaches from the rate below to that rate at least.
    """
    levels = Levels.of(runs)
    crossings = levels.capacity(levels.misses, allowed)
    shares = np.stack(
        [
            _drawn_in(levels, k, float(crossings[k]), allowed)
            for k in range(allowed.size)
        ],
        axis=1,
    )
    floor = np.full(levels.rates.size, np.finfo(np.float64).tiny)
    roots = [
        crossing(levels.rates, shares[:, k], floor, float(allowed[k]))
        for k in range(allowed.size)
    ]
    binding = int(np.argmin(roots))
    rate = roots[binding]
    about = _near(levels, float(crossings[binding]), binding, allowed)
    near = _nearest(levels, rate, about)
    blocks = int(near[levels.level].sum())
    if blocks < _LEAST_BLOCKS or not 0 < rate < np.inf:
        return Estimate(rate, 0.0, np.inf, tuple(roots), None, blocks)
    boot = _Bootstrap.of(levels, shares, near, allowed)
    logs = np.array([boot.draw(rng) for _ in range(resamples)]) - np.log(rate)
    tail = (1.0 - _CONFIDENCE) / 2
    memory = _memory(runs, levels.rates[near], shares[near, binding], binding)
    freedom = memory.freedom if memory else 0.0
    wider = widening(blocks, _CONFIDENCE, freedom)
    low, high = np.quantile(logs, (tail, 1 - tail))
    ends = rate * np.exp(np.array([min(low, 0.0), max(high, 0.0)]) * wider)
    below, above = _unseen(levels, rate, about)
    dispersion = float(boot.residuals[:, binding].var())
    return Estimate(
        rate=rate,
        low=min(float(ends[0]), below),
        high=max(float(ends[1]), above),
        by_term=tuple(roots),
        dispersion=dispersion,
        blocks=blocks,
        memory_seconds=memory.length * runs[0].block_seconds if memory else None,
        freedom=freedom,
        effective_requests=_worth(
            float(levels.block_counts[near[levels.level]].sum()),
            dispersion * wider**2,
            is_open=below < ends[0] or above > ends[1],
        ),
    )


def _worth(requests: float, inflation: float, *, is_open: bool) -> float | None:
    """Return the number of independent requests that give as wide an interval.

    None where other rates than those tried decide how wide it is. Blocks that all miss
    alike do not show that requests are worth more than one each.
    """
    return None if is_open else requests / max(inflation, 1.0)


def widening(blocks: int, confidence: float, freedom: float = np.inf) -> float:
    """Return Student's t over the normal quantile.

    Degrees of freedom: B / 2 - 2, or `freedom` if that is less, but at least 2.
    """
    degrees = min(blocks / _BLOCKS_A_RUN - 2, freedom)
    return dependence.widening(max(int(degrees), 2), confidence)


def _memory(
    runs: Sequence[Observation], rates: Floats, shares: Floats, term: int
) -> dependence.Inflation | None:
    """Return the inflation of the misses beyond those expected, block by block of the runs at `rates`."""
    share = dict(zip(rates.tolist(), shares.tolist(), strict=True))
    rest = [
        (run.misses[:, term] - share[run.rate] * run.counts) / np.sqrt(share[run.rate])
        for run in runs
        if run.rate in share
    ]
    return dependence.sequence_inflation(np.concatenate(rest))


@dataclass(frozen=True, slots=True)
class _Bootstrap:
    """Input of the bootstrap: expected misses (B, K) and residuals (R, K)."""

    levels: Levels
    expected: Floats
    residuals: Floats
    allowed: Floats

    @classmethod
    def of(
        cls,
        levels: Levels,
        shares: Floats,
        near: NDArray[np.bool_],
        allowed: Floats,
    ) -> _Bootstrap:
        expected = shares[levels.level] * levels.block_counts[:, None]
        residuals = (levels.block_misses - expected) / np.sqrt(expected)
        kept = residuals[near[levels.level]]
        kept = kept - kept.mean(axis=0)
        # By luck blocks may be alike; they vary at least as independent requests do.
        # A term without misses there gives no information about its boundary.
        missed = levels.block_misses[near[levels.level]].sum(axis=0) > 0
        spread = np.where(missed, np.clip(kept.std(axis=0), 1e-3, 1.0), 1.0)
        kept = kept / spread
        blocks = kept.shape[0]
        return cls(levels, expected, kept * np.sqrt(blocks / (blocks - 2)), allowed)

    def draw(self, rng: np.random.Generator) -> float:
        """Return the logarithm of the boundary of one resample."""
        levels = self.levels
        drawn = self.residuals[
            rng.integers(0, self.residuals.shape[0], levels.level.size)
        ]
        misses = np.maximum(self.expected + np.sqrt(self.expected) * drawn, 0.0)
        sums = _by_level(levels.level, misses, levels.rates.size)
        boundary = levels.capacity(sums, self.allowed).min()
        low, high = float(levels.rates[0]) / 2, float(levels.rates[-1]) * 2
        return float(np.log(np.clip(boundary, low, high)))


def _nearest(levels: Levels, rate: float, near: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the nearest of the levels near (L,) that have enough blocks.

    Misses vary more at higher load, so with many runs those at the boundary itself give
    the best estimate of the variance.
    """
    blocks = np.bincount(levels.level, minlength=levels.rates.size)
    with np.errstate(divide="ignore"):
        distance = np.abs(np.log(levels.rates / rate))
    order = np.argsort(distance)
    held = (near * blocks)[order]
    kept = np.zeros_like(near)
    kept[order] = np.cumsum(held) - held < _ENOUGH_BLOCKS
    return near & kept


def _unseen(
    levels: Levels, rate: float, near: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the rates about `rate` between which the boundary was not seen.

    Both are `rate` itself where the level above it (L,) is near the boundary.
    """
    above = int(np.searchsorted(levels.rates, rate))
    if not 0 < above < levels.rates.size or near[above]:
        return rate, rate
    return float(levels.rates[above - 1]), float(levels.rates[above])


def _near(
    levels: Levels, boundary: float, term: int, allowed: Floats
) -> NDArray[np.bool_]:
    """Levels (L,) about a boundary, without those far into overload."""
    if not 0 < boundary < np.inf:
        return np.zeros(levels.rates.size, np.bool_)
    share = levels.fitted(levels.misses)[:, term]
    # Far into overload misses vary more, and would widen the interval for nothing.
    most = max(_MOST_FACTOR * float(allowed[term]), _MOST_SHARE / levels.counts.max())
    inside = np.abs(np.log(levels.rates / boundary)) < np.log(_NEAR)
    return np.asarray(inside & (share < most), np.bool_)


def _drawn_in(levels: Levels, term: int, boundary: float, allowed: Floats) -> Floats:
    """Return non-decreasing shares (L,), smoothed by a line near the boundary."""
    share = levels.fitted(levels.misses)[:, term]
    share = np.maximum(share, levels.floors(allowed)[:, term])
    near = _near(levels, boundary, term, allowed)
    line = None
    if near.sum() >= _LEAST_LEVELS:
        line = trend(levels.rates[near], levels.counts[near], levels.misses[near, term])
    if line is not None:
        blocks = np.bincount(levels.level, minlength=levels.rates.size)
        weight = blocks / (blocks + _LINE_BLOCKS)
        smooth = np.log(np.minimum(line.shares(levels.rates), 1.0))
        mixed = np.exp(weight * np.log(share) + (1.0 - weight) * smooth)
        share = np.where(near, mixed, share)
    return never_falling(np.maximum.accumulate(share), levels.counts)


def _by_level(level: NDArray[np.int64], values: Floats, levels: int) -> Floats:
    """Sum the blocks' values (B, K) by level: (L, K)."""
    sums = [np.bincount(level, column, levels) for column in values.T]
    return np.stack(sums, axis=1).astype(np.float64)


def crossing(rates: Floats, shares: Floats, floor: Floats, allowed: float) -> float:
    """Return the rate at which the never-falling `shares` (N,) reach `allowed`.

    Between rates the logarithm of the share is linear: tails of queues are exponential
    in the load. `floor` (N,) stands for shares of 0, which have none. Infinite where
    all are below, and 0 where all are above.
    """
    heights = np.log(np.maximum(shares, floor))
    heights = np.maximum.accumulate(heights)
    target = np.log(allowed)
    above = np.flatnonzero(heights > target)
    if not above.size:
        return np.inf
    first = int(above[0])
    if first == 0:
        return 0.0
    low, high = heights[first - 1], heights[first]
    part = (target - low) / (high - low)
    return float(rates[first - 1] * (rates[first] / rates[first - 1]) ** part)


def never_falling(values: Floats, weights: Floats) -> Floats:
    """Return the never-falling values (N,) nearest to `values` in weighted squares."""
    found: Floats = optimize.isotonic_regression(values, weights=weights).x
    return found
