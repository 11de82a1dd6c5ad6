"""One window and the reference, in the forms that the distances need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import INNER, TOGETHER, feature_slices
from drift.projection import BINS, ORDERED_CELLS, cell_positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from drift.reference import Profile
    from drift.window import Counts

    Floats = NDArray[np.float64]
    Counted = NDArray[np.int64] | NDArray[np.uint32]

QUANTILE = 0.999

_NO_WIDTH: Final = 1e-6
"""A deviation in cells below it is that of a single value."""
_THINNED: Final = 4


@dataclass(frozen=True, slots=True)
class Null:
    """The distribution of a distance without change, for this window's size.

    `mean`, and `bound`, which 99.9 % of windows stay below.
    """

    mean: Floats
    bound: Floats


class Baseline:
    """The reference's side of every comparison; computed once for a profile."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.bins: Floats = profile.summary.bins
        self.numeric = profile.schema.numeric
        self.size: Floats = self.bins.sum(axis=1)
        self.stretch = profile.dispersion.stretch(self.size)
        self.used = profile.projection.used
        self.freedom: Floats = np.maximum(self.used - 1, 0).astype(np.float64)
        ordered = profile.counts.cells[: self.numeric, :ORDERED_CELLS]
        self.ordered = ordered
        self.sd_cells: Floats = self._sd_cells()

    @cached_property
    def cdf(self) -> Floats:
        """Cumulative shares of the reference, (numeric features, ordered cells)."""
        return cumulative(self.ordered)

    def cdf_of(self, part: slice) -> Floats:
        """Cumulative shares of some features; cached for few features, else recomputed."""
        if self.numeric <= TOGETHER:
            return self.cdf[part]
        return cumulative(self.ordered[part])

    def _sd_cells(self) -> Floats:
        share = self.share
        places = cell_positions(np.arange(INNER + 1.0))
        mean = share @ places
        found = np.sqrt(np.maximum(share @ places**2 - mean**2, 0.0))
        grid = self.profile.grid
        for feature in grid.cuts:
            places = cell_positions(grid.places(feature))
            mean = share[feature] @ places
            found[feature] = np.sqrt(max(share[feature] @ places**2 - mean**2, 0.0))
        return np.where(found > _NO_WIDTH, found, 0.0)

    def steps(self, part: slice) -> Floats:
        """Return the length of the axis that each edge represents, (features, ordered cells - 1).

        Half of the cell on either side of it, in units of an even cell.
        """
        width = np.ones((part.stop - part.start, INNER))
        grid = self.profile.grid
        for feature in grid.cuts:
            if part.start <= feature < part.stop:
                width[feature - part.start] = np.diff(grid.places(feature))
        tails = np.zeros((width.shape[0], 1))
        sides = np.concatenate((tails, width, tails), axis=1)
        return np.asarray((sides[:, :-1] + sides[:, 1:]) / 2)

    @property
    def share(self) -> Floats:
        """Shares of the reference, (numeric features, ordered cells)."""
        total = self.ordered.sum(axis=1, dtype=np.float64)
        return np.asarray(self.ordered / np.maximum(total, 1.0)[:, None])

    def compare(self, window: Counts) -> Comparison:
        """A window of counts over the same cells."""
        return Comparison(self, window)

    @cached_property
    def wasserstein_null(self) -> tuple[Floats, Floats]:
        """Mean and 99.9 % bound of W1 / sd for h = 1, see `Comparison.spread`."""
        found = [
            _integrated_bridge(self.cdf_of(part), self.sd_cells[part], self.steps(part))
            for part in feature_slices(self.numeric)
        ]
        means, bounds = zip(*found, strict=True)
        return np.concatenate(means), np.concatenate(bounds)


@dataclass(frozen=True)
class Comparison:
    """The input of a statistic: counts in coarse bins, cumulative shares in fine cells.

    `spread` is h = phi (1 / n + 1 / m) per feature: the variance that n dependent rows
    against m have in place of 1 / n; phi grows with the rows where it has to.
    """

    baseline: Baseline
    window: Counts

    @cached_property
    def bins(self) -> Floats:
        """The window's counts in coarse bins, (features, BINS)."""
        return self.baseline.profile.projection.coarse(self.window.cells)

    @cached_property
    def size(self) -> Floats:
        """Values in the window's distribution, (features,)."""
        return np.asarray(self.bins.sum(axis=1))

    def of_gaps(self, over: Callable[[Floats, slice], Floats]) -> Floats:
        """`over` of the window's cumulative shares less the reference's.

        It gets them (features, ordered cells) for some numeric features at a time, and
        which ones these are; the answers (features,) are put together.
        """
        if self.baseline.numeric <= TOGETHER:
            return over(self._gaps, slice(0, self.baseline.numeric))
        found = [
            over(self._gaps_of(part), part)
            for part in feature_slices(self.baseline.numeric)
        ]
        return np.concatenate(found)

    @cached_property
    def _gaps(self) -> Floats:
        return self._gaps_of(slice(0, self.baseline.numeric))

    def _gaps_of(self, part: slice) -> Floats:
        share = cumulative(self.window.cells[part, :ORDERED_CELLS])
        return np.subtract(share, self.baseline.cdf_of(part), out=share)

    @cached_property
    def shares(self) -> tuple[Floats, Floats]:
        """Reference and window shares in coarse bins, half a row added to each bin.

        The half keeps logarithms finite in empty bins. Bins that no feature uses
        hold 0 on both sides.
        """
        used = self.baseline.used[:, None] > np.arange(BINS)
        sides = (self.baseline.bins, self.bins)
        smooth = [np.where(used, side + 0.5, 0.0) for side in sides]
        first, second = (side / side.sum(axis=1, keepdims=True) for side in smooth)
        return first, second

    @cached_property
    def harmonic(self) -> Floats:
        """1 / n + 1 / m per feature; NaN where a side is empty."""
        return _reciprocal(self.size) + _reciprocal(self.baseline.size)

    @cached_property
    def _dependent(self) -> Floats:
        """`harmonic`, with the growth of phi over long stretches included."""
        phi = self.baseline.profile.dispersion
        if not phi.growth.any():
            return self.harmonic
        ones = np.ones(phi.growth.shape)
        window = phi.stretch(self.window.rows * ones) * _reciprocal(self.size)
        return window + self.baseline.stretch * _reciprocal(self.baseline.size)

    @cached_property
    def spread(self) -> Floats:
        """H for statistics of coarse bins, (features,)."""
        return self.baseline.profile.dispersion.shape * self._dependent

    @cached_property
    def ordered_spread(self) -> Floats:
        """H for statistics of cumulative shares, (numeric features,)."""
        phi = self.baseline.profile.dispersion
        worst = np.maximum(np.maximum(phi.location, phi.scale), phi.shape)
        numeric = self.baseline.numeric
        return np.asarray((worst * self._dependent)[:numeric])

    def padded(self, values: Floats) -> Floats:
        """Values of numeric features, with NaN for the categories after them."""
        features = self.window.cells.shape[0]
        return np.concatenate((values, np.full(features - values.shape[0], np.nan)))

    def over_bins(self, values: Floats) -> Floats:
        """`guarded`, and NaN where all values share one bin: it differs from nothing."""
        return np.where(self.baseline.freedom > 0, self.guarded(values), np.nan)

    def guarded(self, values: Floats) -> Floats:
        """`values` (features,), NaN where a side has no values to compare."""
        empty = (self.size == 0) | (self.baseline.size == 0)
        return np.where(empty, np.nan, values)


def _reciprocal(size: Floats) -> Floats:
    return np.where(size > 0, 1.0 / np.maximum(size, 1.0), np.nan)


def cumulative(cells: Counted) -> Floats:
    """Cumulative shares along the last axis; zeros where there is nothing."""
    sums = np.cumsum(cells, axis=1)
    return np.asarray(sums / np.maximum(sums[:, -1:], 1))


def chi_square_quantile(freedom: Floats, probability: float = QUANTILE) -> Floats:
    """Quantile of the chi-square law; 0 for no degrees of freedom."""
    from scipy.special import chdtri  # noqa: PLC0415 - 0.1 s, not at import

    safe = np.maximum(freedom, 1.0)
    return np.where(freedom > 0, chdtri(safe, 1.0 - probability), 0.0)


def chi_mean(freedom: Floats) -> Floats:
    """Mean of the root of a chi-square variable; 0 for no degrees of freedom."""
    from scipy.special import gammaln  # noqa: PLC0415 - 0.1 s, not at import

    safe = np.maximum(freedom, 1.0)
    mean = np.sqrt(2.0) * np.exp(gammaln((safe + 1.0) / 2.0) - gammaln(safe / 2.0))
    return np.where(freedom > 0, mean, 0.0)


def _integrated_bridge(
    cdf: Floats, sd_cells: Floats, steps: Floats
) -> tuple[Floats, Floats]:
    """Mean and bound of the integral of |B(F(x))| dx / sd, B a Brownian bridge.

    The first two moments are exact on a thinned grid (each |B| is a folded normal, each
    pair has E|XY| = 2/pi (sqrt(1 - r^2) + r asin r) for correlation r); the quantile is
    the gamma law's with these moments. Cells that are not of one width are not thinned.
    """
    from scipy.special import gammaincinv  # noqa: PLC0415 - 0.1 s, not at import

    mean, second = np.zeros((2, cdf.shape[0]))
    for feature, (f, step) in enumerate(zip(cdf[:, :-1], steps, strict=True)):
        even = bool((step[1:-1] == 1).all())
        chosen = slice(_THINNED // 2, None, _THINNED) if even else step > 0
        weight = np.full(f[chosen].shape, float(_THINNED)) if even else step[chosen]
        deviation = weight * np.sqrt(np.maximum(f[chosen] * (1.0 - f[chosen]), 0.0))
        mean[feature] = np.sqrt(2.0 / np.pi) * deviation.sum()
        second[feature] = _second_moment(f[chosen], deviation)
    variance = np.maximum(second - mean**2, 0.0)
    usable = (mean > 0) & (variance > 0) & (sd_cells > 0)
    safe_mean, safe_variance = (
        np.where(usable, values, 1.0) for values in (mean, variance)
    )
    shape = safe_mean**2 / safe_variance
    bound = gammaincinv(shape, QUANTILE) * safe_variance / safe_mean
    sd = np.where(usable, sd_cells, 1.0)
    return np.where(usable, mean / sd, 0.0), np.where(usable, bound / sd, 0.0)


def _second_moment(f: Floats, deviation: Floats) -> float:
    covariance = np.minimum.outer(f, f) - np.outer(f, f)
    spread = f * (1.0 - f)
    product = np.outer(deviation, deviation)
    safe = np.sqrt(np.where(product > 0, np.outer(spread, spread), 1.0))
    r = np.clip(covariance / safe, -1.0, 1.0)
    folded = 2.0 / np.pi * (np.sqrt(1.0 - r**2) + r * np.arcsin(r))
    return float((product * folded).sum())
