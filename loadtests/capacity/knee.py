"""The knee of a curve: Kneedle next to the law, with their disagreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.capacity.isotonic import pooled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.capacity.usl import Usl

    Floats = NDArray[np.float64]

_LEAST_POINTS: Final = 4
_LEAST_BEND: Final = 0.05
_AGREE_RATIO: Final = 1.5
_REACH: Final = 1.5
_FINE: Final = 1000


@dataclass(frozen=True, slots=True)
class Knee:
    """The concurrency beyond which more of it buys waiting, by two methods."""

    kneedle: float | None
    """Of the measured curve; None where it does not bend."""
    law: float | None
    """Where the law's line at no load meets its highest throughput up to half beyond
    the largest measured concurrency; None where that is not within what was measured."""
    agree: bool | None
    """Whether they are within a factor of 1.5; None where one is missing."""


def kneedle(x: Floats, y: Floats) -> float | None:
    """The point of a concave rising curve that is highest above its chord.

    Satopaa et al. 2011: both axes scaled to 0..1, the knee maximises y - x; made to
    rise first. None where the curve is too short or nowhere bends by a twentieth.
    """
    order = np.argsort(x)
    x, y = x[order], pooled(y[order], np.ones(x.size))
    if x.size < _LEAST_POINTS or y[-1] <= y[0]:
        return None
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    place = int(np.argmax(above))
    return float(x[place]) if above[place] >= _LEAST_BEND else None


def knee(concurrency: Floats, throughput: Floats, usl: Usl | None) -> Knee:
    """By both methods, from means over repetitions."""
    places = np.unique(concurrency)
    means = np.array([throughput[concurrency == place].mean() for place in places])
    by_curve = kneedle(places, means)
    by_law = None if usl is None else _by_law(usl)
    agree = None
    if by_curve is not None and by_law is not None:
        agree = max(by_curve, by_law) <= _AGREE_RATIO * min(by_curve, by_law)
    return Knee(by_curve, by_law, agree)


def _by_law(usl: Usl) -> float | None:
    reach = np.linspace(1.0, _REACH * usl.most_measured, _FINE)
    meets = float(usl.throughput(reach).max()) / usl.per_unit.value
    return meets if meets < usl.most_measured else None
