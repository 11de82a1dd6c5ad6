"""The share of misses as a line of logarithms over the rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_STEPS: Final = 60
_LONGEST_STEP: Final = 3.0
_LEAST_SLOPE: Final = 0.5  # a share that hardly grows with the rate has no boundary


@dataclass(frozen=True, slots=True)
class Trend:
    """log share = intercept + slope log (rate / centre)."""

    intercept: float
    slope: float
    centre: float

    def shares(self, rates: Floats) -> Floats:
        """Expected shares at rates (N,)."""
        found: Floats = np.exp(
            self.intercept + self.slope * np.log(rates / self.centre)
        )
        return found


def trend(rates: Floats, counts: Floats, misses: Floats) -> Trend | None:
    """Return the line through levels (L,), by Poisson quasi-likelihood with a log link.

    Weighs each level by its information, zeros included; over-dispersion does not move
    the line (McCullagh & Nelder 1989, 9.2). By Newton's method with bounded steps. None
    where there were no misses, or the share does not grow.
    """
    if misses.sum() <= 0:
        return None
    centre = float(np.exp(np.log(rates).mean()))
    x = np.log(rates / centre)
    design = np.stack([np.ones_like(x), x], axis=1)
    line = np.array([np.log(misses.sum() / counts.sum()), 5.0])
    for _ in range(_STEPS):
        expected = counts * np.exp(np.clip(design @ line, -30.0, 5.0))
        bend = design.T @ (design * expected[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(bend, design.T @ (misses - expected))
        longest = float(np.abs(step).max())
        line = line + step / max(1.0, longest / _LONGEST_STEP)
    if not np.isfinite(line).all() or line[1] < _LEAST_SLOPE:
        return None
    return Trend(float(line[0]), float(line[1]), centre)
