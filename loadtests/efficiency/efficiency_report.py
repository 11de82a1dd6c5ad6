"""Efficiency as data: the JSON reports of the curve and of a pair, and their intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from pydantic import Field

from exporter.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MODELLED = "model"
_RESAMPLES: Final = 4000
_FEWEST: Final = 5
"""Blocks or pairs below which there is no interval."""
_Z: Final = 1.959964
_BOUNDS: Final = (2.5, 97.5)


class Interval(Settings):
    """An estimate and its 95 % interval; null where the data cannot support one."""

    estimate: float
    low: float | None
    high: float | None


class LevelPower(Settings):
    """One boundary at one level."""

    boundary: str
    watts: float
    known: bool
    """True if power was known all the time."""
    joules_per_inference: Interval | None
    """Null at idle, and where nothing was answered."""
    inferences_per_second_per_watt: float


class EfficiencyLevel(Settings):
    """One level of load."""

    name: str
    load_ratio: float
    """Share of the calibrated maximum; 0 is idle."""
    offered_per_second: float
    inferences_per_second: float
    """Correct answers, times the rows of a request."""
    miss_ratio: float
    power: tuple[LevelPower, ...]


class EfficiencyReport(Settings):
    """The curve of one mix of models."""

    format: Literal["tritonwatch-load-efficiency"] = "tritonwatch-load-efficiency"
    models: tuple[str, ...]
    maximum_per_second: float
    """Requests a second that 100 % is."""
    calibrations: tuple[float, ...]
    """Closed-loop throughputs it comes from; none where it was given."""
    concurrency: int
    level_seconds: float
    sources: dict[str, str]
    """Kind of the power source, by boundary; "model" is no measurement."""
    descriptions: dict[str, str]
    levels: tuple[EfficiencyLevel, ...]
    score: dict[str, float]
    """Inferences a second over watts, summed over all levels and idle, by boundary."""
    seed: int
    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = Field(default=())
    """Disturbances of the numbers that do not make them invalid."""
    versions: dict[str, str]
    hardware: dict[str, Any]


class PairReport(Settings):
    """Two models compared, in pairs of consecutive blocks."""

    format: Literal["tritonwatch-load-pair"] = "tritonwatch-load-pair"
    reference: str
    candidate: str
    pairs: int
    block_seconds: float
    concurrency: int
    speed_up: Interval
    """Candidate's inferences a second over the reference's."""
    energy_ratio: dict[str, Interval] = Field(default={})
    """Candidate's joules an inference over the reference's, by boundary."""
    accuracy: dict[str, float] = Field(default={})
    """Accuracy by model, on the labelled rows."""
    accuracy_change: Interval | None = Field(default=None)
    """Candidate's accuracy less the reference's, on the same rows."""
    rows: int = 0
    sources: dict[str, str]
    descriptions: dict[str, str]
    seed: int
    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = Field(default=())
    """Disturbances of the numbers that do not make them invalid."""
    versions: dict[str, str]
    hardware: dict[str, Any]


def ratio_of_sums(above: ArrayLike, below: ArrayLike, *, seed: int) -> Interval:
    """Return sum over sum, as joules over inferences, over blocks of one level.

    Percentile bootstrap over the blocks; neighbours are treated as independent, which
    makes the interval too narrow where power drifts.
    """
    tops = np.asarray(above, np.float64)
    bottoms = np.asarray(below, np.float64)
    estimate = float(tops.sum() / bottoms.sum())
    if tops.size < _FEWEST:
        return Interval(estimate=estimate, low=None, high=None)
    drawn = _draws(tops.size, seed)
    sums = bottoms[drawn].sum(axis=1)
    ratios = tops[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    return _interval(estimate, ratios)


def median_ratio(above: ArrayLike, below: ArrayLike, *, seed: int) -> Interval:
    """Return the median of the ratios of pairs measured one right after the other.

    Percentile bootstrap over the pairs.
    """
    ratios = np.asarray(above, np.float64) / np.asarray(below, np.float64)
    estimate = float(np.median(ratios))
    if ratios.size < _FEWEST:
        return Interval(estimate=estimate, low=None, high=None)
    return _interval(estimate, np.median(ratios[_draws(ratios.size, seed)], axis=1))


def paired_change(before: ArrayLike, after: ArrayLike) -> Interval:
    """Return the change of a proportion on the same rows, from correct or wrong on each.

    Wald interval with Laplace adjustment of the discordant cells (Bonett and Price,
    Journal of Educational and Behavioral Statistics 37(4), 2012), which does not
    collapse to a point where no row changed.
    """
    first, second = np.asarray(before, bool), np.asarray(after, bool)
    rows = first.size
    gained = int(np.count_nonzero(~first & second))
    lost = int(np.count_nonzero(first & ~second))
    up, down = (gained + 1) / (rows + 2), (lost + 1) / (rows + 2)
    middle = up - down
    half = _Z * math.sqrt((up + down - middle**2) / (rows + 2))
    return Interval(
        estimate=(gained - lost) / rows,
        low=max(-1.0, middle - half),
        high=min(1.0, middle + half),
    )


def _draws(size: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, size, size=(_RESAMPLES, size))


def _interval(estimate: float, drawn: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(drawn, _BOUNDS)
    return Interval(estimate=estimate, low=float(low), high=float(high))
