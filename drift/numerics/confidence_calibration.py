"""Estimated accuracy without labels: confidences calibrated on the golden set.

Confidence-based estimation (NannyML's CBPE; Guo et al. 2017 for calibration): the golden
set gives the accuracy of answers by confidence, by isotonic regression; the confidences
of production then give the accuracy of production. That holds while answers of one
confidence are as often correct as in the golden set. Rows that repeat count once, and
the interval grows by the share of production whose confidences the golden set does not
have. Concept drift, a changed relation of input to truth, is not detected: the model is
as confident as ever, and wrong.

Reference: Massey, The Kolmogorov-Smirnov test for goodness of fit, Journal of the
American Statistical Association 46 (1951) 68-78: the distance of two samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from drift.numerics import dependence

if TYPE_CHECKING:
    from drift.numerics.normal import Floats, Ints

LEAST_SAMPLES: Final = 50
LEAST_OUTPUTS: Final = 50
MOST_OUTSIDE: Final = 0.05
"""Largest share of confidences below all that the golden set had."""
_Z95: Final = 1.959964
_Z_CONTRADICTED: Final = 3.0
_MEAN_DISTANCE: Final = math.sqrt(math.pi / 2.0) * math.log(2.0)
"""Mean Kolmogorov-Smirnov distance of like samples, times the root of their size."""

Condition = Literal[
    "calibrated",
    "enough_outputs",
    "within_calibration",
    "drift_watched",
    "drift_guaranteed",
    "no_drift",
    "golden_agrees",
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Accuracy of one window of outputs, with a 95 % interval and its conditions."""

    accuracy: float
    low: float
    high: float
    outputs: int
    effective_outputs: float
    """Answers to different inputs that `outputs` are worth; unknown confidences are worth none."""
    conditions: dict[Condition, bool]
    """True for each known condition of its validity that is met."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Accuracy by confidence, non-decreasing, as the golden set has it."""

    knots: Floats
    """Confidences, ascending."""
    levels: Floats
    """Accuracy at each knot; in between, straight."""
    blocks: Floats
    """(blocks, 4): least confidence, answers, correct answers and squared sizes of the
    groups of copies, summed, of each level."""
    confidences: Floats
    """(samples,) of the golden answers, ascending."""
    groups: Ints
    """(samples,) which of them are copies of one another: those of one number."""
    independent: float
    """Number of golden answers without copies that carry as much information."""

    @property
    def samples(self) -> int:
        """Golden answers, copies included."""
        return self.confidences.size

    @property
    def accuracy(self) -> float:
        """Share of the golden answers that are right."""
        return float(self.blocks[:, 2].sum() / self.samples)

    def accuracy_of(self, confidences: Floats) -> Floats:
        """Return how often answers of these confidences are right."""
        return np.interp(confidences, self.knots, self.levels)

    def estimate(self, confidences: Floats, groups: Ints | None = None) -> Estimate:
        """The accuracy behind these confidences; NaN counts as a wrong answer.

        The interval has three parts: which answers of the window are right by chance,
        how well so many golden samples know the curve, and the share of the window whose
        confidences are unlike the golden ones: nobody knows how right these are.

        Args:
            confidences: (n,) in [0, 1] or NaN.
            groups: (n,) answers to the same input have the same number; None where all
                are different.
        """
        is_known = np.isfinite(confidences)
        known = confidences[is_known]
        groups = np.arange(known.size) if groups is None else groups[is_known]
        count = max(1, confidences.size)
        rates = self.accuracy_of(known)
        accuracy = float(rates.sum() / count)
        _, place, copies = np.unique(groups, return_inverse=True, return_counts=True)
        # Copies are all right or all wrong.
        rate = np.bincount(place, rates) / copies if known.size else rates
        chance = float((copies**2 * rate * (1.0 - rate)).sum()) / count**2
        half = _Z95 * math.sqrt(chance + self._curve_variance(known, count))
        independent = known.size / dependence.copies_inflation(groups).phi
        unlike = self._unlike(known, independent) * known.size / count
        outside = float(np.mean(known < self.knots[0])) if known.size else 1.0
        return Estimate(
            accuracy,
            max(0.0, accuracy - half - unlike),
            min(1.0, accuracy + half + unlike),
            confidences.size,
            independent,
            {
                "calibrated": self.independent >= LEAST_SAMPLES,
                "enough_outputs": copies.size >= LEAST_OUTPUTS,
                "within_calibration": outside <= MOST_OUTSIDE,
            },
        )

    def agrees_with(self, other: Calibration) -> bool:
        """Return whether another golden set of the model is as right as this one foretells.

        Within three standard errors of what this curve makes of the other set's
        confidences, and its interval's share of unlike ones.
        """
        found = self.estimate(other.confidences, other.groups)
        half = _Z_CONTRADICTED / _Z95
        low = found.accuracy - half * (found.accuracy - found.low)
        high = found.accuracy + half * (found.high - found.accuracy)
        return low <= other.accuracy <= high

    def _unlike(self, confidences: Floats, independent: float) -> float:
        """Kolmogorov-Smirnov distance to the golden confidences, beyond its mean by chance.

        The confidences are worth `independent` ones.
        """
        if not confidences.size:
            return 0.0
        known = np.sort(confidences)
        at = np.concatenate([known, self.confidences])
        distance = np.abs(
            np.searchsorted(known, at, side="right") / known.size
            - np.searchsorted(self.confidences, at, side="right") / self.samples
        ).max()
        chance = _MEAN_DISTANCE * math.sqrt(1.0 / independent + 1.0 / self.independent)
        return max(0.0, float(distance) - chance)

    def _curve_variance(self, confidences: Floats, count: int) -> float:
        place = np.searchsorted(self.blocks[:, 0], confidences, side="right") - 1
        weights = np.bincount(np.maximum(place, 0), minlength=len(self.blocks)) / count
        answers, right = self.blocks[:, 1], self.blocks[:, 2]
        independent = answers**2 / self.blocks[:, 3]
        # Jeffreys: a block without an error is not known to be without.
        rate = (right / answers * independent + 0.5) / (independent + 1.0)
        return float((weights**2 * rate * (1.0 - rate) / independent).sum())


def calibrate(
    confidences: Floats, right: Floats, groups: Ints | None = None
) -> Calibration | None:
    """Return the calibration of these answers, or None without any.

    Args:
        confidences: (n,) in [0, 1]; answers that are not finite are left out.
        right: (n,) whether each answer is right.
        groups: (n,) samples that are (nearly) the same have the same number; None where
            all are different.
    """
    known = np.flatnonzero(np.isfinite(confidences))
    if not known.size:
        return None
    order = known[np.argsort(confidences[known], kind="stable")]
    confidences, right = confidences[order], np.asarray(right, np.float64)[order]
    groups = np.arange(order.size) if groups is None else groups[order]
    starts, levels, sizes = isotonic(confidences, right)
    ends = starts + sizes.astype(np.intp) - 1
    knots = np.stack([confidences[starts], confidences[ends]], axis=1).ravel()
    values = np.repeat(levels, 2)
    # A block of one point is both its ends.
    keep = np.concatenate([[True], np.diff(knots) > 0])
    return Calibration(
        knots[keep],
        values[keep],
        np.stack(
            [confidences[starts], sizes, levels * sizes, _squares(groups, starts)],
            axis=1,
        ),
        confidences,
        groups,
        order.size / dependence.copies_inflation(groups).phi,
    )


def isotonic(
    x: Floats, y: Floats
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], Floats, Floats]:
    """Pool adjacent violators (Ayer et al. 1955) over `x` in ascending order.

    Returns where each block starts, its level and its number of points. Points of equal
    `x` are one from the beginning.
    """
    first = np.flatnonzero(np.concatenate([[True], np.diff(x) > 0]))
    weight = np.diff(np.append(first, x.size)).astype(np.float64)
    mean = np.add.reduceat(y, first) / weight
    starts: list[int] = []
    levels: list[float] = []
    sizes: list[float] = []
    for start, level, size in zip(first.tolist(), mean, weight, strict=True):
        starts.append(start)
        levels.append(float(level))
        sizes.append(float(size))
        while len(levels) > 1 and levels[-2] >= levels[-1]:
            last, count = levels.pop(), sizes.pop()
            starts.pop()
            total = sizes[-1] + count
            levels[-1] = (levels[-1] * sizes[-1] + last * count) / total
            sizes[-1] = total
    return np.array(starts, np.intp), np.array(levels), np.array(sizes)


def _squares(groups: Ints, starts: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    """Squared numbers of answers of each group within a block, summed by block."""
    block = np.searchsorted(starts, np.arange(groups.size), side="right") - 1
    pairs, counts = np.unique(np.stack([block, groups]), axis=1, return_counts=True)
    squares = np.square(counts.astype(np.float64))
    return np.bincount(pairs[0], squares, len(starts)).astype(np.float64)
