"""Block overdispersion: the variance of window sums relative to independent rows.

Rows of real traffic depend on each other (a customer, an hour, a batch). With block sums S_b
of n_b rows the overdispersion is phi (`drift/numerics/dependence.py`), 1 for independent rows. It grows with the block while the dependence is longer than the
block, so it is measured at every dyadic block size with at least `MIN_BLOCKS` blocks, and
the largest counts. A value within `PRETEST` standard errors of 1 counts as 1.

Where phi still grows at the largest such block, as it does with weather, seasons and
timetables, it is assumed to continue to grow as a power of the rows (`alarm_calibration.py`). And
blocks are no normal variables: phi is raised until the evidence that the alarms would
see in the reference's own blocks averages to no more than they may
(`alarm_calibration.py`).

Reference: Wedderburn (1974), quasi-likelihood; Kuensch (1989), block methods.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.dependence import in_pairs, variance_ratio
from drift.projection import BINS, EVENTS, at_risk
from drift.projection import trials as trials_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from drift.projection import Projection, Summary

    Floats = NDArray[np.float64]

MIN_BLOCKS: Final = 30
# Location, scale, shape and the events: the kinds of change that alarms detect.
CHANNELS: Final = 3 + len(EVENTS)
PRETEST: Final = 2.5

_SCALE: Final = 1
_MOST_OF_A_STRETCH: Final = 0.7
"""Largest shift of a scale, in deviations of one dependent stretch."""
_MIN_PER_BIN: Final = 2.0
_EDGE_SLACK: Final = 1.3


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Overdispersion per feature: location, scale, shape (features,), events (.., 3).

    It holds for stretches of up to `reach_rows`; beyond, it grows as the rows to the
    power `growth` (features,), which is 0 where the dependence ends within them.
    `unit_rows` (features, CHANNELS) is how many rows depend on each other, 0 for none: the
    first block size with half of the largest overdispersion, or the largest block where
    no end of the dependence was found. `shown` (features, 2, BINS) is the least and the
    greatest share of each coarse bin in any stretch of `reach_rows`, NaN where `growth`
    is 0.
    """

    location: Floats
    scale: Floats
    shape: Floats
    events: Floats
    growth: Floats
    unit_rows: Floats
    shown: Floats
    reach_rows: float = np.inf

    @classmethod
    def independent(cls, features: int) -> Dispersion:
        """Every row on its own: all ones."""
        one = np.ones(features)
        events = np.ones((features, len(EVENTS)))
        return cls(
            one,
            one,
            one,
            events,
            np.zeros(features),
            np.zeros((features, CHANNELS)),
            np.full((features, 2, BINS), np.nan),
        )

    def part(self, features: slice) -> Dispersion:
        """Return the dispersion of some features."""
        return replace(
            self, **{name: getattr(self, name)[features] for name in _ARRAYS}
        )

    @classmethod
    def joined(cls, found: Sequence[Dispersion]) -> Dispersion:
        """Join the dispersions of parts of the features, in their order."""
        joined = {
            name: np.concatenate([getattr(spread, name) for spread in found])
            for name in _ARRAYS
        }
        return cls(**joined, reach_rows=found[0].reach_rows)

    def stretch(self, rows: Floats) -> Floats:
        """Factor of the overdispersion in a sum over `rows` (..., features), at least 1."""
        if not self.growth.any():
            return np.ones_like(rows)
        return np.asarray(np.maximum(rows / self.reach_rows, 1.0) ** self.growth)

    @property
    def largest_shifts(self) -> dict[str, Floats]:
        """Largest shift up, (features,), for which sums of each score are evidence.

        Where rows share a level, as those of one customer do, squares of a whole stretch rise together: its
        sum is a chi-square of one degree, whose exponential moments end at a shift of
        0.7 of its deviation. Sums over a window of few stretches are no nearer to normal,
        and blocks are too few to show that tail.
        """
        stretch = self.unit_rows[:, _SCALE] / self.scale
        with np.errstate(divide="ignore"):
            scale = np.where(stretch > 0, _MOST_OF_A_STRETCH / np.sqrt(stretch), np.inf)
        return {"location": np.full_like(scale, np.inf), "scale": scale}

    def channels(self) -> Floats:
        """Return all values as (features, CHANNELS)."""
        scores = np.stack((self.location, self.scale, self.shape), axis=1)
        return np.concatenate((scores, self.events), axis=1)

    def most(self, rows: Floats, reference_rows: int) -> Floats:
        """Maximum log evidence of `rows` (..., features): (..., CHANNELS).

        One correlated stretch is one observation. Beside K others of the
        reference it can be the worst of K + 1, which is evidence of at most K + 1
        (the rank's e-value); j stretches can reach (K + 1)^j.
        """
        dependent = self.unit_rows > 0
        unit = np.where(dependent, self.unit_rows, 1.0)
        stretches = np.ceil(rows[..., None] / unit)
        each = np.log1p(reference_rows / unit)
        return np.where(dependent, stretches * each, np.inf)


_MEASURED: Final = ("location", "scale", "shape", "events")
_ARRAYS: Final = (*_MEASURED, "growth", "unit_rows", "shown")
"""Fields with a first axis of features, in their order."""


def estimate(blocks: Sequence[Summary], projection: Projection) -> Dispersion:
    """Overdispersion from consecutive blocks of the reference, all of about one size.

    Fewer than `MIN_BLOCKS` blocks give ones: the caller must report that nothing is guaranteed.
    """
    worst = Dispersion.independent(projection.used.shape[0])
    levels = []
    for stacked in dyadic(blocks):
        spread = ordered(_at(stacked, projection.used))
        levels.append((float(stacked.rows.mean()), spread))
        largest = {
            name: np.maximum(getattr(worst, name), getattr(spread, name))
            for name in _MEASURED
        }
        worst = replace(worst, **largest, reach_rows=levels[-1][0])
    return replace(worst, unit_rows=_units(levels, worst))


def _at(blocks: Blocks, used: NDArray[np.int64]) -> Dispersion:
    """Return the dispersion at one block size."""
    return replace(
        Dispersion.independent(used.shape[0]),
        location=_of_scores(blocks.location, blocks.finite),
        scale=_of_scores(blocks.scale, blocks.finite),
        shape=np.maximum(_of_bins(blocks, used), _of_worst_direction(blocks, used)),
        events=_of_events(blocks),
    )


def ordered(spread: Dispersion) -> Dispersion:
    """Raise values to those that they cannot be smaller than.

    A shape moves with its location and scale, so it is at least as dependent. Values
    beyond the range are too rare in the reference for a measurement of their own, and
    come in runs as the values within it do.
    """
    shape = np.maximum(spread.shape, np.maximum(spread.location, spread.scale))
    events = spread.events.copy()
    outside = EVENTS.index("outside")
    events[:, outside] = np.maximum(events[:, outside], shape)
    return replace(spread, shape=shape, events=events)


def extremes(blocks: Sequence[Summary], growth: Floats) -> Floats:
    """Least and greatest share of each bin, (features, 2, BINS), where `growth` is not 0.

    Over the longest stretches of which there are `MIN_BLOCKS`; half a row more than came
    is the greatest.
    """
    *_, longest = dyadic(blocks)
    size = np.maximum(longest.bins.sum(axis=2, keepdims=True), 1.0)
    found = np.stack(
        (
            (longest.bins / size).min(axis=0),
            ((longest.bins + 0.5) / (size + 0.5)).max(axis=0),
        ),
        axis=1,
    )
    return np.where(growth[:, None, None] > 0, found, np.nan)


def _units(
    levels: Sequence[tuple[float, Dispersion]], worst: Dispersion
) -> NDArray[np.float64]:
    """Rows that depend on each other, from every level's size and overdispersion.

    All kinds of change of a feature share the longest: what makes one storm of them is
    the same.
    """
    largest = worst.channels()
    units = np.zeros(largest.shape)
    for rows, spread in levels:
        found = (units == 0) & (largest > 1) & (spread.channels() >= 0.5 * largest)
        units[found] = rows
    longest = units.max(axis=1, keepdims=True, initial=0.0)
    return np.where(units > 0, longest, 0.0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks stacked along a new first axis; `rows` is (blocks, 1)."""

    rows: Floats
    finite: Floats
    location: Floats
    scale: Floats
    bins: Floats
    events: Floats


def _stack(blocks: Sequence[Summary]) -> Blocks:
    rows = np.array([[float(block.rows)] for block in blocks])
    others = (
        np.stack([getattr(block, each.name) for block in blocks])
        for each in fields(Blocks)[1:]
    )
    return Blocks(rows, *others)


def dyadic(blocks: Sequence[Summary], least: int = MIN_BLOCKS) -> Iterator[Blocks]:
    """The blocks, then pairs of them, and so on while there are at least `least`."""
    level = _stack(blocks) if blocks else None
    while level is not None and level.rows.shape[0] >= least:
        yield level
        level = Blocks(
            *(in_pairs(getattr(level, each.name)) for each in fields(Blocks))
        )


def _significant(ratio: Floats, error: Floats | float) -> Floats:
    return np.where(ratio > 1.0 + PRETEST * error, ratio, 1.0)


def _of_scores(sums: Floats, trials: Floats) -> Floats:
    error = (2.0 / sums.shape[0]) ** 0.5
    return _significant(variance_ratio(sums, trials, 1.0), error)


def bins_ratio(blocks: Blocks, used: NDArray[np.int64]) -> Floats:
    """Phi of the coarse bins' counts, on average over bins; (features,)."""
    expected = _expected_bins(blocks)
    terms = (blocks.bins - expected) ** 2 / np.where(expected > 0, expected, 1.0)
    return np.asarray(terms.sum(axis=(0, 2)) / _bins_freedom(blocks, used))


def _of_bins(blocks: Blocks, used: NDArray[np.int64]) -> Floats:
    freedom = _bins_freedom(blocks, used)
    sparse = _mean_reciprocal(_expected_bins(blocks)) / np.maximum(used - 1.0, 1.0)
    error = np.sqrt(2.0 / freedom + sparse / freedom)
    return _significant(bins_ratio(blocks, used), error)


def _bins_freedom(blocks: Blocks, used: NDArray[np.int64]) -> Floats:
    return np.asarray(np.maximum((used - 1.0) * (blocks.bins.shape[0] - 1), 1.0))


def _expected_bins(blocks: Blocks) -> Floats:
    trials = blocks.bins.sum(axis=2, keepdims=True)
    share = blocks.bins.sum(axis=0) / np.maximum(trials.sum(axis=0), 1.0)
    return np.asarray(trials * share)


def _of_worst_direction(blocks: Blocks, used: NDArray[np.int64]) -> Floats:
    """Largest eigenvalue of the standardised bins' covariance over blocks.

    Independent rows have eigenvalues up to the Marchenko-Pastur edge
    (1 + sqrt(bins / blocks))^2 by chance; only what is clearly beyond counts. Blocks
    with too few rows for a covariance are left out.
    """
    count = blocks.bins.shape[0]
    trials = blocks.bins.sum(axis=2, keepdims=True)
    expected = _expected_bins(blocks)
    residual = (blocks.bins - expected) / np.sqrt(np.where(expected > 0, expected, 1.0))
    covariance = np.einsum("kfi,kfj->fij", residual, residual) / (count - 1)
    largest = np.linalg.eigvalsh(covariance)[:, -1]
    edge = (1.0 + np.sqrt(np.maximum(used - 1, 0) / count)) ** 2
    dense = trials.mean(axis=(0, 2)) >= _MIN_PER_BIN * used
    return np.where(dense & (largest > _EDGE_SLACK * edge), largest, 1.0)


def _mean_reciprocal(expected: Floats) -> Floats:
    inverse = np.divide(1.0, expected, np.zeros_like(expected), where=expected > 0)
    return np.asarray(inverse.mean(axis=0).sum(axis=1))


def _of_events(blocks: Blocks) -> Floats:
    trials = at_risk(trials_of(blocks.finite, blocks.events), blocks.events)
    share = blocks.events.sum(axis=0) / np.maximum(trials.sum(axis=0), 1.0)
    variance = trials * share * (1.0 - share)
    usable = variance > 0
    held = np.maximum(usable.sum(axis=0), 1)
    inverse = np.where(usable, 1.0 / np.where(usable, variance, 1.0), 0.0).sum(axis=0)
    error = np.sqrt((2.0 + inverse / held) / held)
    return _significant(variance_ratio(blocks.events, trials), error)
