"""How right a model is without labels: its confidence, set right by the golden set.

Confidence-based estimation (NannyML's CBPE; Guo et al. 2017 for calibration): the golden
set tells how often an answer of a certain confidence is right, by isotonic regression;
production's confidences then tell how often production's answers are. That holds while
the *inputs* change and the relation of input to truth does not. A changed relation,
concept drift, it cannot see: the model is as confident as ever, and wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from exporter.numerics.normal import Floats

BINS: Final = 10
LEAST_SAMPLES: Final = 50
LEAST_OUTPUTS: Final = 50
MOST_OUTSIDE: Final = 0.05
"""Largest share of confidences below all that the golden set had."""
_Z95: Final = 1.959964

Condition = Literal["calibrated", "enough_outputs", "within_calibration", "no_drift"]


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of the reliability diagram: confidence said, accuracy found."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Accuracy of one window of outputs, with a 95 % interval, and what speaks against."""

    accuracy: float
    low: float
    high: float
    outputs: int
    conditions: dict[Condition, bool]
    """Whether each condition of its being valid holds."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Accuracy by confidence, non-decreasing, as the golden set has it."""

    knots: Floats
    """Confidences, ascending."""
    levels: Floats
    """Accuracy at each knot; in between, straight."""
    blocks: Floats
    """(blocks, 3): least confidence, answers and right answers of each level."""
    samples: int
    bins: tuple[Bin, ...]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of confidence and accuracy."""
        return sum(
            bar.count * abs(bar.confidence - bar.accuracy) for bar in self.bins
        ) / max(1, self.samples)

    def accuracy_of(self, confidences: Floats) -> Floats:
        """Return how often answers of these confidences are right."""
        return np.interp(confidences, self.knots, self.levels)

    def estimate(self, confidences: Floats, *, no_drift: bool = True) -> Estimate:
        """The accuracy behind these confidences; NaN counts as a wrong answer.

        The interval has both parts: which answers of the window are right by chance, and
        how well so many golden samples know the curve. Where production is far less
        sure than the golden answers were, the curve's thin end is biased low, and 95 %
        become some 90 %.
        """
        known = confidences[np.isfinite(confidences)]
        count = max(1, confidences.size)
        rates = self.accuracy_of(known)
        accuracy = float(rates.sum() / count)
        chance = float((rates * (1.0 - rates)).sum()) / count**2
        half = _Z95 * math.sqrt(chance + self._curve_variance(known, count))
        outside = float(np.mean(known < self.knots[0])) if known.size else 1.0
        return Estimate(
            accuracy,
            max(0.0, accuracy - half),
            min(1.0, accuracy + half),
            confidences.size,
            {
                "calibrated": self.samples >= LEAST_SAMPLES,
                "enough_outputs": known.size >= LEAST_OUTPUTS,
                "within_calibration": outside <= MOST_OUTSIDE,
                "no_drift": no_drift,
            },
        )

    def _curve_variance(self, confidences: Floats, count: int) -> float:
        place = np.searchsorted(self.blocks[:, 0], confidences, side="right") - 1
        weights = np.bincount(np.maximum(place, 0), minlength=len(self.blocks)) / count
        answers, right = self.blocks[:, 1], self.blocks[:, 2]
        # Jeffreys: a block without an error is not known to be without.
        rate = (right + 0.5) / (answers + 1.0)
        return float((weights**2 * rate * (1.0 - rate) / answers).sum())


def calibrate(confidences: Floats, right: Floats) -> Calibration | None:
    """The calibration of these answers; None where there are none.

    Args:
        confidences: (n,) in [0, 1]; answers that are not finite are left out.
        right: (n,) whether each answer is right.
    """
    known = np.isfinite(confidences)
    confidences, right = confidences[known], np.asarray(right, np.float64)[known]
    if not confidences.size:
        return None
    order = np.argsort(confidences, kind="stable")
    confidences, right = confidences[order], right[order]
    starts, levels, sizes = isotonic(confidences, right)
    ends = starts + sizes.astype(np.intp) - 1
    knots = np.stack([confidences[starts], confidences[ends]], axis=1).ravel()
    values = np.repeat(levels, 2)
    # A block of one point is both its ends.
    keep = np.concatenate([[True], np.diff(knots) > 0])
    return Calibration(
        knots[keep],
        values[keep],
        np.stack([confidences[starts], sizes, levels * sizes], axis=1),
        int(confidences.size),
        _reliability(confidences, right),
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


def _reliability(confidences: Floats, right: Floats) -> tuple[Bin, ...]:
    place = np.minimum((confidences * BINS).astype(np.intp), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    said = np.bincount(place, weights=confidences, minlength=BINS)
    found = np.bincount(place, weights=right, minlength=BINS)
    return tuple(
        Bin(
            i / BINS,
            (i + 1) / BINS,
            int(counts[i]),
            float(said[i] / counts[i]),
            float(found[i] / counts[i]),
        )
        for i in range(BINS)
        if counts[i]
    )
