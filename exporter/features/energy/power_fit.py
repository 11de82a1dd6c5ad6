"""Watts of a busy second of each model, with their intervals, from windows. Pure.

Mean power of a window = baseline + sum over models of busy ratio x watts + residual. The
models' watts have a weak prior: what a model adds to the mean power is the pooled share
give or take half of all that is above idle. The baseline has one, too: the idle power
that is assumed, give or take 15 %. The residual variance is estimated, so that the priors
weigh less with every window and decide only what the windows do not tell.

A sensor shows power late. The windows' power comes read at several delays; the one with
the smallest residual is the sensor's lag (the least-squares form of the peak of the
cross-correlation), between two delays by linear interpolation, which makes the residual
a parabola.

The variance of an estimate is the larger of the Bayesian one and that of the residuals
weighted as the estimate weights them (White's, with the leverage of MacKinnon and White's
HC3) times the inflation that blocks of these show (`dependence.series_inflation`).

References:
    A. E. Hoerl, R. W. Kennard, Technometrics 12 (1970) 55-67: ridge as a normal prior.
    D. J. C. MacKay, Neural Computation 4 (1992) 415-447: residual variance by the
    effective number of parameters.
    J. G. MacKinnon, H. White, Journal of Econometrics 29 (1985) 305-325: HC3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.numerics import dependence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LAG_STEP_SECONDS: Final = 0.5
MOST_LAG_SECONDS: Final = 5.0
DELAYS: Final = np.arange(0.0, MOST_LAG_SECONDS + LAG_STEP_SECONDS, LAG_STEP_SECONDS)
"""Seconds after a window at which its power is read, too."""
CONFIDENCE: Final = 0.95
_IDLE_ERROR: Final = 0.15
_CONTRIBUTION_ERROR: Final = 0.5
_LEAST_ABOVE: Final = 0.1
"""Of all power: no board is believed to take less for its models before it is measured."""
_LEAST_WINDOWS: Final = 20
_LEAST_FREEDOM: Final = 3
_NOT_TOLD: Final = 0.5
"""Above this part of its prior's deviation an estimate is not told by the windows."""
_LAG_EVIDENCE: Final = 12.0
_LEAST_VARIANCE: Final = 1e-10
_MOST_LEVERAGE: Final = 0.95
_ROUNDS: Final = 6
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Fit:
    """What the windows tell."""

    watts: Floats
    """Of a busy second of each model (K,), at least 0."""
    half_widths: Floats
    """Of their 95 % intervals (K,); nan where the windows do not tell, or idle power is
    not known."""
    baseline_watts: float
    """To be added to the idle power that was assumed."""
    lag_seconds: float | None
    """How late the sensor is; None where the windows show no lag."""


def fit(busy: Floats, power: Floats, idle_watts: float | None) -> Fit:
    """Fit windows in order of time.

    Args:
        busy: busy ratios of the models (n, K); each model is busy in some window.
        power: mean watts of the windows, read at the first L of `DELAYS` (n, L).
        idle_watts: what is taken for idle; None: everything is the models'.
    """
    above = power - (idle_watts or 0.0)
    models = busy.shape[1]
    scale = busy.mean(axis=0)
    mean = max(float(above[:, 0].mean()), 0.0)
    design, prior = busy / scale, scale * mean / scale.sum()
    widest = max(mean, _LEAST_ABOVE * float(power[:, 0].mean()), _TINY)
    spread = np.full(models, _CONTRIBUTION_ERROR * widest)
    least = -prior / spread
    if idle_watts:
        design = np.column_stack((design, np.ones(len(design))))
        prior = np.append(prior, 0.0)
        spread = np.append(spread, _IDLE_ERROR * idle_watts)
        least = np.append(least, -1.0 / _IDLE_ERROR)
    rest = above - (design @ prior)[:, None]
    design = design * spread
    _, residuals = _ridge(design, rest)
    first, part, gain = _best_delay(residuals)
    second = min(first + 1, rest.shape[1] - 1)
    slope = rest[:, second] - rest[:, first]
    shown = rest[:, first] + part * slope
    variances, _ = _ridge(design, shown[:, None])
    variance = float(variances[0])
    found = _bounded(design, shown, variance, least)
    widths = _half_widths(design, slope, shown - design @ found, variance)
    if idle_watts is None:
        widths[:] = np.nan
    values = prior + spread * found
    late = (first + part) * LAG_STEP_SECONDS
    return Fit(
        np.maximum(values[:models], 0.0) / scale,
        widths[:models] * spread[:models] / scale,
        float(values[models]) if idle_watts else 0.0,
        late if gain > _LAG_EVIDENCE and late > 0 else None,
    )


def _ridge(design: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """Residual variances (m,) and residuals (n, m) of each column of `rest` (n, m).

    Coefficients have normal priors of variance 1. The variance is the fixed point of
    squares of residuals over windows less effective parameters.
    """
    values, vectors = np.linalg.eigh(design.T @ design)
    values = np.maximum(values, 0.0)[:, None]
    turned = design @ vectors
    moments = turned.T @ rest
    # Less residual than this no sensor has; it keeps the equations solvable.
    least = max(_LEAST_VARIANCE * float(values.sum()), _TINY)
    variance = np.maximum(np.square(rest).mean(axis=0), least)
    residuals = rest
    for _ in range(_ROUNDS):
        residuals = rest - turned @ (moments / (values + variance))
        told = (values / (values + variance)).sum(axis=0)
        squares = np.square(residuals).sum(axis=0)
        variance = np.maximum(squares / np.maximum(len(rest) - told, 0.5), least)
    return variance, residuals


def _best_delay(residuals: Floats) -> tuple[int, float, float]:
    """Delay with the smallest residuals.

    Its place, the part of a step beyond it, and by how many residual variances the sum
    of squares is smaller than at no delay.
    """
    squares = np.square(residuals).sum(axis=0)
    if squares.size == 1:
        return 0, 0.0, 0.0
    steps = np.diff(residuals, axis=1)
    lengths = np.square(steps).sum(axis=0)
    slopes = (residuals[:, :-1] * steps).sum(axis=0)
    parts = np.clip(-slopes / np.maximum(lengths, _TINY), 0.0, 1.0)
    left = squares[:-1] + 2.0 * parts * slopes + np.square(parts) * lengths
    place = int(left.argmin())
    least = max(float(left[place]), _TINY * float(squares[0]), _TINY)
    gain = len(residuals) * (float(squares[0]) - least) / least
    return place, float(parts[place]), gain


def _bounded(design: Floats, shown: Floats, variance: float, least: Floats) -> Floats:
    """Coefficients of least squares and prior; those below `least` are held there."""
    gram = design.T @ design + variance * np.eye(least.size)
    moment = design.T @ shown
    found = least.copy()
    free = np.ones(least.size, dtype=bool)
    for _ in range(_ROUNDS):
        held = gram[np.ix_(free, ~free)] @ least[~free]
        found[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free] - held)
        if (found >= least).all():
            break
        free &= found > least
        found = np.where(free, found, least)
    return np.maximum(found, least)


def _half_widths(
    design: Floats, slope: Floats, residuals: Floats, variance: float
) -> Floats:
    """Half widths of the coefficients' 95 % intervals; nan where the data do not tell.

    `slope` is by how much the power rises with one step of delay: what is not known of
    the lag adds to what is not known of the coefficients.
    """
    if len(residuals) < _LEAST_WINDOWS:
        return np.full(design.shape[1], np.nan)
    design = np.column_stack((design, slope))
    inverse = np.linalg.inv(design.T @ design + variance * np.eye(design.shape[1]))
    weights = design @ inverse
    leverage = np.minimum((weights * design).sum(axis=1), _MOST_LEVERAGE)
    parts = weights * (residuals / (1.0 - leverage))[:, None]
    inflation = dependence.series_inflation(parts, np.square(weights))
    if inflation is None:
        return np.full(design.shape[1] - 1, np.nan)
    bayesian = variance * np.diagonal(inverse)
    independent = variance * np.square(weights).sum(axis=0)
    robust = inflation.phi * np.square(parts).sum(axis=0)
    deviations = np.sqrt(bayesian + np.maximum(robust - independent, 0.0))
    told = (bayesian <= _NOT_TOLD**2) & (inflation.freedom >= _LEAST_FREEDOM)
    factors = [
        dependence.student_quantile((1.0 + CONFIDENCE) / 2.0, int(freedom))
        for freedom in np.maximum(inflation.freedom, _LEAST_FREEDOM)
    ]
    return np.where(told, deviations * np.array(factors), np.nan)
