"""Overdispersion at which the reference's own blocks raise no alarm.

A variance does not describe a snowstorm: blocks of real traffic have far heavier tails
than normal ones, and it is the tails that raise alarms. So the alarms' own evidence is
taken for every block of the reference beside the rest of it. While nothing changes its
mean must be at most 1; phi is raised until the mean over the blocks, the worst of them
counted twice, is. A block somewhat worse than all before is then no alarm by itself.

Reference: Vovk, Wang (2021), "E-values: calibration, combination and applications" for
what an average of e-values may be; the doubled worst block stands for the next one, as
the added point of Laplace and of conformal prediction does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.alarms import likelihood_ratios
from drift.dispersion import (
    Blocks,
    Dispersion,
    bins_ratio,
    dyadic,
    estimate,
    extremes,
    ordered,
)
from drift.numerics.dependence import variance_ratio
from drift.projection import at_risk, trials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from drift.projection import Projection, Summary

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]
    Counted = NDArray[np.int64] | NDArray[np.uint32]


STEP: Final = 1.25
MAX_STEPS: Final = 48
TOLERANCE: Final = 1e-6


def measured(
    blocks: Sequence[Summary], projection: Projection, cells: Counted
) -> Dispersion:
    """Overdispersion by variance, its growth, and raised as far as the tails ask for.

    Where the variance found no dependence nothing is raised: the evidence of
    independent rows needs no calibration, and would lose power by it.
    """
    spread = estimate(blocks, projection)
    power = growth(blocks, projection, spread.shape)
    endless = (power > 0)[:, None] & (spread.unit_rows > 0)
    spread = replace(
        spread,
        growth=power,
        unit_rows=np.where(endless, spread.reach_rows, spread.unit_rows),
        shown=extremes(blocks, power) if power.any() else spread.shown,
    )
    if not (spread.shape > 1).any() and not (spread.events > 1).any():
        return spread
    tilts = likelihood_ratios.score_tilts(projection, cells)
    for level in dyadic(blocks):
        sides = _Sides(level, spread)
        spread = ordered(
            replace(
                spread,
                location=_raised(
                    spread.location, sides.of_scores("location", tilts[0])
                ),
                scale=_raised(spread.scale, sides.of_scores("scale", tilts[1])),
            )
        )
        spread = ordered(
            replace(
                spread,
                shape=_raised(spread.shape, sides.of_shape(projection.used)),
                events=_raised(spread.events.reshape(-1), sides.of_rates()).reshape(
                    spread.events.shape
                ),
            )
        )
    return spread


def _raised(phi: Floats, excess: Callable[[Floats, Places], Floats]) -> Floats:
    """Phi raised where it is above 1, until `excess` at it is no longer above 0."""
    phi = phi.copy()
    active = np.flatnonzero(phi > 1.0)
    for _ in range(MAX_STEPS):
        if active.size == 0:
            break
        active = active[excess(phi[active], active) > TOLERANCE]
        phi[active] *= STEP
    return phi


class _Sides:
    """Each block (after) and all the others (before), as the alarms would receive them."""

    def __init__(self, blocks: Blocks, spread: Dispersion) -> None:
        features = spread.growth.shape[0]
        rows = np.broadcast_to(blocks.rows, (blocks.rows.shape[0], features))
        self._blocks = blocks
        self._longer = spread.stretch(rows.sum(axis=0) - rows)
        self._largest = spread.largest_shifts

    def of_scores(
        self, name: str, tilt: likelihood_ratios.Tilts
    ) -> Callable[[Floats, Places], Floats]:
        """Excess of the evidence for a shift of a score."""
        sums: Floats = getattr(self._blocks, name)
        finite, largest = self._blocks.finite, self._largest[name]

        def excess(phi: Floats, at: Places) -> Floats:
            old = phi * self._longer[:, at]
            n, s = finite[:, at], sums[:, at]
            before = (n.sum(axis=0) - n) / old, (s.sum(axis=0) - s) / old
            ratios = likelihood_ratios.of_mean(
                before,
                (n / phi, s / phi),
                likelihood_ratios.Tilts(tilt.up[at], tilt.down[at]),
                largest=largest[at],
            )
            return _log_mean_of_blocks(ratios)

        return excess

    def of_shape(self, used: NDArray[np.int64]) -> Callable[[Floats, Places], Floats]:
        """Excess of the evidence for another shape."""
        bins = self._blocks.bins

        def excess(phi: Floats, at: Places) -> Floats:
            old = (phi * self._longer[:, at])[..., None]
            after = bins[:, at]
            before = (after.sum(axis=0) - after) / old
            ratios = likelihood_ratios.of_shape(
                before, after / phi[:, None], used[at], half=0.5 / old
            )
            return _log_mean_of_blocks(ratios)

        return excess

    def of_rates(self) -> Callable[[Floats, Places], Floats]:
        """Excess of the evidence for more events; places are features times kinds."""
        blocks, kinds = self._blocks, self._blocks.events.shape[2]
        events = blocks.events.reshape(blocks.events.shape[0], -1)
        number = at_risk(trials(blocks.finite, blocks.events), blocks.events)
        number = number.reshape(events.shape)
        rest = number.sum(axis=0) - number

        def excess(phi: Floats, at: Places) -> Floats:
            old = phi * self._longer[:, at // kinds]
            k = events[:, at]
            ratios = likelihood_ratios.of_rate(
                (rest[:, at] / old, (k.sum(axis=0) - k) / old),
                (number[:, at] / phi, k / phi),
            )
            return _log_mean_of_blocks(ratios)

        return excess


def _log_mean_of_blocks(ratios: Floats) -> Floats:
    """Log of the mean e-value over blocks (blocks, n), the largest counted twice."""
    again = np.concatenate((ratios, ratios.max(axis=0, keepdims=True)))
    return likelihood_ratios.log_mean(again.T)


# Levels of few blocks are noisy, but the only ones that reach far; they weigh as many
# blocks as they have.
MIN_BLOCKS: Final = 8
SIGNIFICANT: Final = 2.0

_MIN_LEVELS: Final = 3
_MOST: Final = 1.0


def growth(
    blocks: Sequence[Summary], projection: Projection, phi: Floats
) -> NDArray[np.float64]:
    """The power g of every feature, (features,), between 0 and 1.

    The largest slope of location, scale and bins, weighted by blocks; 0 where it is
    within `SIGNIFICANT` standard errors of 0, or where `phi` (features,) found no
    dependence at all.
    """
    levels = list(dyadic(blocks, MIN_BLOCKS))
    features = projection.used.shape[0]
    if len(levels) < _MIN_LEVELS:
        return np.zeros(features)
    ratios = np.stack(
        [
            np.stack(
                (
                    variance_ratio(level.location, level.finite, 1.0),
                    variance_ratio(level.scale, level.finite, 1.0),
                    bins_ratio(level, projection.used),
                )
            )
            for level in levels
        ]
    )
    weights = np.array([level.rows.shape[0] for level in levels], np.float64)
    octaves = np.arange(len(levels), dtype=np.float64)
    octaves -= (weights * octaves).sum() / weights.sum()
    information = float((weights * octaves**2).sum())
    usable = (ratios > 0).all(axis=0)
    logs = np.log2(np.where(ratios > 0, ratios, 1.0))
    slopes = np.tensordot(weights * octaves, logs, axes=1) / information
    # log2 phi of k blocks has the variance 2 / k / ln(2)^2.
    error = np.sqrt(2.0 / information) / np.log(2.0)
    slopes = np.where(usable & (slopes > SIGNIFICANT * error), slopes, 0.0)
    return np.where(phi > 1.0, np.minimum(slopes.max(axis=0), _MOST), 0.0)
