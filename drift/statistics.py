"""Distances between a window and the reference: effect sizes with their null values.

A distance never raises an alarm by itself, see `drift.alarms`. To add one, write a
`Statistic`, and add it to `STATISTICS`.
"""

# ruff: noqa: D102 - the base says what the methods return

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from drift.comparison import Null, chi_mean, chi_square_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.comparison import Comparison

    Floats = NDArray[np.float64]

# Mean sqrt(pi/2) ln 2 and 99.9 % quantile of Kolmogorov's law.
_KOLMOGOROV_MEAN: Final = 0.8687311606
_KOLMOGOROV_QUANTILE: Final = 1.9494746346


class Statistic(ABC):
    """A distance between a window and the reference: an effect size, not an alarm.

    A feature with nothing to compare has the distance NaN, and so has a categorical one
    where the distance needs an order (`ordered`).
    """

    kind: ClassVar[str]
    """Name in configurations and metrics."""
    title: ClassVar[str]
    """Name in reports."""
    ordered: ClassVar[bool] = False
    classic: ClassVar[float | None] = 0.1
    """The usual rule of thumb, which ignores the number of rows; None if there is none."""

    @abstractmethod
    def distance(self, comparison: Comparison) -> Floats:
        """The distance of every feature, (features,); 0 of the reference to itself."""

    @abstractmethod
    def null(self, comparison: Comparison) -> Null:
        """Mean and 99.9 % bound of the distance if nothing changed."""


class Psi(Statistic):
    """Population stability index, in nats: the symmetrised Kullback-Leibler divergence.

    Formula: sum_b (q_b - p_b) ln(q_b / p_b) over coarse bins of about equal reference
    share p, window share q, half a row added to every bin.

    Null: h times a chi-square variable with (bins - 1) degrees of freedom.

    Reference: Siddiqi (2006), Credit Risk Scorecards; the null after Yurdakul (2018).

    When not to use it: with few rows against a fixed threshold (100 rows in 24 bins
    have 0.23 without any change), or where the order of the bins matters.
    """

    kind = "psi"
    title = "PSI"
    classic = 0.2

    def distance(self, comparison: Comparison) -> Floats:
        p, q = comparison.shares
        ratio = np.log(np.where(q > 0, q, 1.0) / np.where(p > 0, p, 1.0))
        return comparison.over_bins(((q - p) * ratio).sum(axis=1))

    def null(self, comparison: Comparison) -> Null:
        freedom, spread = comparison.baseline.freedom, comparison.spread
        return Null(freedom * spread, chi_square_quantile(freedom) * spread)


class JensenShannon(Statistic):
    """Jensen-Shannon distance, between 0 and 1.

    Formula: sqrt((KL(p | m) + KL(q | m)) / 2) with m = (p + q) / 2 and logarithms to
    base 2, over coarse bins, half a row added to every bin.

    Null: the root of h / (8 ln 2) times a chi-square variable, (bins - 1) degrees.

    Reference: Lin (1991); Endres, Schindelin (2003) for the root being a metric.

    When not to use it: to see how far values shifted; once the laws no longer overlap it
    stays at 1.
    """

    kind = "jensen_shannon"
    title = "Jensen-Shannon"

    def distance(self, comparison: Comparison) -> Floats:
        p, q = comparison.shares
        middle = np.where(p + q > 0, (p + q) / 2.0, 1.0)
        terms = [s * np.log2(np.where(s > 0, s, middle) / middle) for s in (p, q)]
        divergence = np.maximum((terms[0] + terms[1]).sum(axis=1) / 2.0, 0.0)
        return comparison.over_bins(np.sqrt(divergence))

    def null(self, comparison: Comparison) -> Null:
        freedom = comparison.baseline.freedom
        unit = np.sqrt(comparison.spread / (8.0 * np.log(2.0)))
        bound = np.sqrt(chi_square_quantile(freedom))
        return Null(chi_mean(freedom) * unit, bound * unit)


class KolmogorovSmirnov(Statistic):
    """Largest difference between the cumulative shares, between 0 and 1.

    Formula: max_c |F(c) - G(c)| over the edges of the fine cells, which is at most the
    exact distance and less by no more than the largest share of a single cell.

    Null: sqrt(h) times Kolmogorov's law; smaller for discrete features.

    Reference: Kolmogorov (1933); Smirnov (1939).

    When not to use it: for categories, for changes in the tails alone.
    """

    kind = "kolmogorov_smirnov"
    title = "Kolmogorov-Smirnov"
    ordered = True

    def distance(self, comparison: Comparison) -> Floats:
        furthest = comparison.of_gaps(
            lambda gaps, _: np.asarray(np.abs(gaps).max(axis=1, initial=0.0))
        )
        return comparison.guarded(comparison.padded(furthest))

    def null(self, comparison: Comparison) -> Null:
        root = np.sqrt(comparison.ordered_spread)
        mean, bound = (
            np.minimum(each * root, 1.0)
            for each in (_KOLMOGOROV_MEAN, _KOLMOGOROV_QUANTILE)
        )
        return Null(comparison.padded(mean), comparison.padded(bound))


class Wasserstein(Statistic):
    """Mean distance that values have to move, in reference standard deviations.

    Formula: integral |F(x) - G(x)| dx / sd over the fine grid; the tails count as if
    they lay at the grid's ends, for both the distance and sd. A pure shift by s has the
    distance s / sd.

    Null: sqrt(h) times the integral of a Brownian bridge's modulus; its mean is exact,
    its quantile that of the gamma law with the same two moments.

    Reference: del Barrio, Gine, Matran (1999), "Central limit theorems for the
    Wasserstein distance between the empirical and the true distributions".

    When not to use it: for categories; for constants, which have no deviation; for
    outliers far beyond the reference's range, which the share of values out of range
    shows.
    """

    kind = "wasserstein"
    title = "Wasserstein-1 / sd"
    ordered = True

    def distance(self, comparison: Comparison) -> Floats:
        baseline = comparison.baseline
        even = not baseline.profile.grid.cuts

        def moved(gaps: Floats, part: slice) -> Floats:
            apart = np.abs(gaps)
            if even:
                # Half cells at both ends, where the tails' mass is put.
                ends = apart[:, 0] + apart[:, -2]
                return np.asarray(apart[:, :-1].sum(axis=1) - 0.5 * ends)
            return np.asarray((apart[:, :-1] * baseline.steps(part)).sum(axis=1))

        sd = baseline.sd_cells
        scaled = comparison.of_gaps(moved) / np.where(sd > 0, sd, np.nan)
        return comparison.guarded(comparison.padded(scaled))

    def null(self, comparison: Comparison) -> Null:
        mean, bound = comparison.baseline.wasserstein_null
        root = np.sqrt(comparison.ordered_spread)
        return Null(comparison.padded(mean * root), comparison.padded(bound * root))


STATISTICS: Final[dict[str, Statistic]] = {
    statistic.kind: statistic
    for statistic in (Psi(), JensenShannon(), KolmogorovSmirnov(), Wasserstein())
}
"""Every distance by its kind, in the order of reports."""
