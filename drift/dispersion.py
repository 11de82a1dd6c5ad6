"""How much more window sums vary than independent rows would: the block overdispersion.

Rows of real traffic hang together (a customer, an hour, a batch). With block sums S_b
of n_b rows and row variance v the overdispersion is

    phi = sum_b (S_b - n_b m)^2 / (n_b v) / (k - 1),

1 for independent rows. It grows with the block while the dependence is longer than the
block, so it is taken at every dyadic block size with at least `MIN_BLOCKS` blocks, and
the largest counts. A value within `PRETEST` standard errors of 1 is taken as 1.

Reference: Wedderburn (1974), quasi-likelihood; Kuensch (1989), block methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.projection import BINS, EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from drift.projection import Projection, Summary

    Floats = NDArray[np.float64]

MIN_BLOCKS: Final = 30
PRETEST: Final = 2.5

_MIN_PER_BIN: Final = 2.0
_EDGE_SLACK: Final = 1.3


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Overdispersion per feature: location, scale, shape (features,), events (.., 3)."""

    location: Floats
    scale: Floats
    shape: Floats
    events: Floats

    @classmethod
    def independent(cls, features: int) -> Dispersion:
        """Every row on its own: all ones."""
        one = np.ones(features)
        return cls(one, one, one, np.ones((features, len(EVENTS))))


def estimate(blocks: Sequence[Summary], projection: Projection) -> Dispersion:
    """Overdispersion from consecutive blocks of the reference, all of about one size.

    Fewer than `MIN_BLOCKS` blocks give ones: the caller must say the promise is void.
    """
    worst = Dispersion.independent(projection.used.shape[0])
    for stacked in dyadic(blocks):
        worst = Dispersion(
            np.maximum(worst.location, _of_scores(stacked.location, stacked.finite)),
            np.maximum(worst.scale, _of_scores(stacked.scale, stacked.finite)),
            np.maximum(
                np.maximum(worst.shape, _of_bins(stacked, projection.used)),
                _of_worst_direction(stacked, projection.used),
            ),
            np.maximum(worst.events, _of_events(stacked)),
        )
    # A shape moves with its location and scale, so it is at least as dependent.
    shape = np.maximum(worst.shape, np.maximum(worst.location, worst.scale))
    # Values beyond the range are too rare in the reference for a measurement of their
    # own, and come in runs as the values within it do.
    events = worst.events.copy()
    outside = EVENTS.index("outside")
    events[:, outside] = np.maximum(events[:, outside], shape)
    return Dispersion(worst.location, worst.scale, shape, events)


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
    return Blocks(
        np.array([[float(block.rows)] for block in blocks]),
        np.stack([block.finite for block in blocks]),
        np.stack([block.location for block in blocks]),
        np.stack([block.scale for block in blocks]),
        np.stack([block.bins for block in blocks]),
        np.stack([block.events for block in blocks]),
    )


def dyadic(blocks: Sequence[Summary]) -> Iterator[Blocks]:
    """The blocks, then pairs of them, and so on while there are `MIN_BLOCKS`."""
    level = _stack(blocks) if blocks else None
    while level is not None and level.rows.shape[0] >= MIN_BLOCKS:
        yield level
        level = Blocks(
            *(
                _pairs(array)
                for array in (
                    level.rows,
                    level.finite,
                    level.location,
                    level.scale,
                    level.bins,
                    level.events,
                )
            )
        )


def _pairs(array: Floats) -> Floats:
    even = array.shape[0] // 2 * 2
    return np.asarray(array[0:even:2] + array[1:even:2])


def _significant(ratio: Floats, error: Floats | float) -> Floats:
    return np.where(ratio > 1.0 + PRETEST * error, ratio, 1.0)


def _of_scores(sums: Floats, trials: Floats) -> Floats:
    blocks = sums.shape[0]
    mean = sums.sum(axis=0) / np.maximum(trials.sum(axis=0), 1.0)
    squared = (sums - trials * mean) ** 2 / np.maximum(trials, 1.0)
    return _significant(squared.sum(axis=0) / (blocks - 1), (2.0 / blocks) ** 0.5)


def _of_bins(blocks: Blocks, used: NDArray[np.int64]) -> Floats:
    count = blocks.bins.shape[0]
    trials = blocks.bins.sum(axis=2, keepdims=True)
    share = blocks.bins.sum(axis=0) / np.maximum(trials.sum(axis=0), 1.0)
    expected = trials * share
    terms = (blocks.bins - expected) ** 2 / np.where(expected > 0, expected, 1.0)
    freedom = np.maximum((used - 1) * (count - 1), 1)
    sparse = _mean_reciprocal(expected) / BINS
    error = np.sqrt(2.0 / freedom + sparse / freedom)
    return _significant(terms.sum(axis=(0, 2)) / freedom, error)


def _of_worst_direction(blocks: Blocks, used: NDArray[np.int64]) -> Floats:
    """Largest eigenvalue of the standardised bins' covariance over blocks.

    Independent rows have eigenvalues up to the Marchenko-Pastur edge
    (1 + sqrt(bins / blocks))^2 by chance; only what is clearly beyond counts. Blocks
    with too few rows for a covariance say nothing.
    """
    count = blocks.bins.shape[0]
    trials = blocks.bins.sum(axis=2, keepdims=True)
    share = blocks.bins.sum(axis=0) / np.maximum(trials.sum(axis=0), 1.0)
    expected = trials * share
    residual = (blocks.bins - expected) / np.sqrt(np.where(expected > 0, expected, 1.0))
    covariance = np.einsum("kfi,kfj->fij", residual, residual) / (count - 1)
    largest = np.linalg.eigvalsh(covariance)[:, -1]
    edge = (1.0 + np.sqrt(np.maximum(used - 1, 0) / count)) ** 2
    dense = trials.mean(axis=(0, 2)) >= _MIN_PER_BIN * used
    return np.where(dense & (largest > _EDGE_SLACK * edge), largest, 1.0)


def _mean_reciprocal(expected: Floats) -> Floats:
    filled = expected > 0
    inverse = np.where(filled, 1.0 / np.where(filled, expected, 1.0), 0.0)
    return np.asarray(inverse.mean(axis=0).sum(axis=1))


def _of_events(blocks: Blocks) -> Floats:
    count = blocks.events.shape[0]
    trials = blocks.rows[:, :, None]
    share = blocks.events.sum(axis=0) / np.maximum(trials.sum(axis=0), 1.0)
    variance = trials * share * (1.0 - share)
    usable = variance > 0
    terms = (blocks.events - trials * share) ** 2 / np.where(usable, variance, 1.0)
    ratio = np.where(usable, terms, 0.0).sum(axis=0) / (count - 1)
    inverse = np.where(usable, 1.0 / np.where(usable, variance, 1.0), 0.0).mean(axis=0)
    return _significant(ratio, np.sqrt((2.0 + inverse) / count))
