"""Watts of a busy second of each model, with their intervals, from windows. Pure.

Mean power of a window = baseline + sum over models of busy ratio x watts + residual. The
models' watts have a weak prior: what a model adds to the mean power is the pooled share
give or take half of all that is above idle. The baseline has one, too: the idle power
that is assumed, give or take 15 %, and what other load took in windows without models,
give or take its deviation there. The residual variance is estimated, so that the priors
weigh less with every window and decide only what the windows do not determine.

A sensor shows power late. The windows' power comes read at several delays; the one with
the smallest residual is the sensor's lag (the least-squares form of the peak of the
cross-correlation), between two delays by linear interpolation, which makes the residual
a parabola.

Residuals that resemble the one before are freed of it (Prais and Winsten). The variance
of an estimate is the Bayesian one, or more where the residuals, weighted as the estimate
weights them, show more: HC3 times the inflation that blocks of these show
(`dependence.sequence_inflation`).

References:
    A. E. Hoerl, R. W. Kennard, Technometrics 12 (1970) 55-67: ridge as a normal prior.
    D. J. C. MacKay, Neural Computation 4 (1992) 415-447: residual variance by the
    effective number of parameters.
    S. J. Prais, C. B. Winsten, Cowles Commission Discussion Paper 383 (1954).
    J. G. MacKinnon, H. White, Journal of Econometrics 29 (1985) 305-325: HC3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics import dependence, normal

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
"""Minimum share of power above idle: assumed of a board before it is measured."""
_LEAST_WINDOWS: Final = 20
_LEAST_FREEDOM: Final = 3
_UNDETERMINED: Final = 0.5
"""Share of the prior's deviation above which the windows do not determine an estimate."""
_LAG_EVIDENCE: Final = 12.0
_LEAST_VARIANCE: Final = 1e-10
_MOST_LEVERAGE: Final = 0.95
_ROUNDS: Final = 6
_EXPECTED_SMEAR: Final = 0.5
"""Share of the interpolation's smearing that is expected when work comes in bursts; steady
work has none.
"""
_MEMORY_ROUNDS: Final = 3
_MOST_MEMORY: Final = 0.97
_LEAST_MEMORY: Final = -0.6
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """Power above idle in windows in which no model ran: other processes, noise."""

    watts: float = 0.0
    """Mean."""
    deviation_watts: float = 0.0
    """Standard deviation of one window."""


NO_OTHER_LOAD: Final = OtherLoad()


@dataclass(frozen=True, slots=True)
class Fit:
    """Estimates from the windows."""

    watts: Floats
    """Watts of each model while busy (K,), at least 0."""
    half_widths: Floats
    """Half widths of their 95 % intervals (K,); nan where the windows do not determine them, or
    idle power is not known.
    """
    effective_windows: Floats
    """Independent windows that would give intervals of the same width (K,); nan likewise."""
    baseline_watts: float
    """Watts to add to the assumed idle power."""
    lag_seconds: float | None
    """Delay of the sensor; None where the windows show none."""
    residual_variance: float
    """Mean square of what the estimates leave unexplained in a window, in square watts."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Observations of n windows, in order of time."""

    busy: Floats
    """Busy ratios of the models (n, K); each model is busy in some window."""
    power: Floats
    """Mean watts, read at the first L of `DELAYS` (n, L)."""
    seconds: Floats
    """Lengths (n,)."""
    smear: Floats
    """Seconds of power on the wrong side of the window's end (n, L), where work comes in
    bursts: what is read there is interpolated between two instants."""
    follows: NDArray[np.bool_]
    """True where a window begins at the end of the one before (n,)."""


def fit(
    windows: Windows, idle_watts: float | None, others: OtherLoad = NO_OTHER_LOAD
) -> Fit:
    """Fit windows; `idle_watts` is the assumed idle power, None: all is the models'."""
    busy, power = windows.busy, windows.power - (idle_watts or 0.0)
    models, scale = busy.shape[1], busy.mean(axis=0)
    mean = max(float(power[:, 0].mean()) - others.watts, 0.0)
    widest = max(mean, _LEAST_ABOVE * float(windows.power[:, 0].mean()), _TINY)
    prior = scale * mean / scale.sum()
    spread = np.full(models, _CONTRIBUTION_ERROR * widest)
    least = -prior / spread
    if idle_watts:
        error = math.hypot(_IDLE_ERROR * idle_watts, others.deviation_watts)
        prior = np.append(prior, others.watts)
        spread = np.append(spread, error)
        least = np.append(least, -(idle_watts + others.watts) / error)
    design = _design(busy / scale, prior)
    _, residuals = _ridge(design * spread, power - (design @ prior)[:, None])
    first, part, gain = _best_delay(residuals)
    second = min(first + 1, power.shape[1] - 1)
    smear = (1.0 - part) * windows.smear[:, first] + part * windows.smear[:, second]
    smear = smear + part * (1.0 - part) * LAG_STEP_SECONDS * (second > first)
    smear = _EXPECTED_SMEAR * smear
    busy = busy + _moved(windows, busy, smear)
    design = _design(busy / scale, prior)
    slope = power[:, second] - power[:, first]
    rest = power[:, first] + part * slope - design @ prior
    problem = _Problem(
        windows, design * spread, design @ prior, rest, smear, slope, least
    )
    found, widths, worth, variance = _solved(problem)
    if idle_watts is None:
        widths[:] = worth[:] = np.nan
    values = prior + spread * found
    late = (first + part) * LAG_STEP_SECONDS
    return Fit(
        np.maximum(values[:models], 0.0) / scale,
        widths[:models] * spread[:models] / scale,
        worth[:models],
        float(values[models]) if idle_watts else 0.0,
        late if gain > _LAG_EVIDENCE else None,
        variance,
    )


def _design(ratios: Floats, prior: Floats) -> Floats:
    """Models' columns, and that of the baseline where it has a prior."""
    if prior.size == ratios.shape[1]:
        return ratios
    return np.column_stack((ratios, np.ones(len(ratios))))


def _moved(windows: Windows, values: Floats, seconds: Floats) -> Floats:
    """Return the change of mean values if each window's last seconds belonged to the next.

    A second that the end of a window divides is interpolated: each side gets its share of
    the whole, which mixes neighbours as a slow sensor does.
    """
    columns = values.reshape(len(values), -1)
    joined = (seconds[:-1] * windows.follows[1:])[:, None]
    rise = np.diff(columns, axis=0) * joined
    moved = np.zeros_like(columns)
    moved[:-1] += rise
    moved[1:] -= rise
    return (moved / windows.seconds[:, None]).reshape(values.shape)


@dataclass(frozen=True, slots=True)
class _Problem:
    """The regression: rest = design x coefficients, whose priors are normal (0, 1)."""

    windows: Windows
    design: Floats
    expected: Floats
    """Power by the prior (n,)."""
    rest: Floats
    """Power less that (n,)."""
    smear: Floats
    """Seconds of power that may be the next window's (n,)."""
    slope: Floats
    """Increase of power with one step of delay (n,)."""
    least: Floats
    """Lower bound of each coefficient."""


def _solved(problem: _Problem) -> tuple[Floats, Floats, Floats, float]:
    """Coefficients, half widths, effective windows, and variance of the residuals.

    What is not known of the lag and of how the sensor smears power are two more columns.
    Where residuals resemble those before (load of others, temperature), differences tell
    more than levels (Prais and Winsten's transformation).
    """
    count = problem.least.size
    found, memory = np.zeros(count + 2), 0.0
    residuals = problem.rest
    widths = worth = np.full(count + 2, np.nan)
    for left in reversed(range(_MEMORY_ROUNDS)):
        power = problem.expected + problem.design @ found[:count]
        smear = _moved(problem.windows, power, problem.smear)
        design = np.column_stack((problem.design, -problem.slope, smear))
        follows, rest = problem.windows.follows, problem.rest
        freed, freed_rest = _freed(follows, memory, design, rest[:, None])
        variances, _ = _ridge(freed, freed_rest)
        shown, variance = freed_rest[:, 0], float(variances[0])
        least = np.append(problem.least, [-np.inf, -np.inf])
        found = _bounded(freed, shown, variance, least)
        residuals = rest - design @ found
        memory = _memory(follows, residuals)
        if not left:
            widths, worth = _half_widths(freed, shown - freed @ found, variance)
    left_over = float(np.square(residuals).mean())
    return found[:count], widths[:count], worth[:count], left_over


def _memory(follows: NDArray[np.bool_], residuals: Floats) -> float:
    """Correlation of residuals with those before.

    Negative where what is read too late for a window is in the next.
    """
    products = residuals[1:] * residuals[:-1] * follows[1:]
    squares = float(np.square(residuals).sum())
    found = float(products.sum()) / max(squares, _TINY)
    return min(max(found, _LEAST_MEMORY), _MOST_MEMORY)


def _freed(
    follows: NDArray[np.bool_], memory: float, *columns: Floats
) -> tuple[Floats, ...]:
    """Each less `memory` of the row before; first rows of a sequence are only scaled."""
    if not memory:
        return columns
    found = []
    for values in columns:
        freed = values * math.sqrt(1.0 - memory**2)
        rows = np.flatnonzero(follows[1:]) + 1
        freed[rows] = values[rows] - memory * values[rows - 1]
        found.append(freed)
    return tuple(found)


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
        effective = (values / (values + variance)).sum(axis=0)
        squares = np.square(residuals).sum(axis=0)
        variance = np.maximum(squares / np.maximum(len(rest) - effective, 0.5), least)
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
    design: Floats, residuals: Floats, variance: float
) -> tuple[Floats, Floats]:
    """Return half widths of 95 % intervals, and how many independent windows give them.

    Both are nan where the data do not determine them.
    """
    unknown = np.full(design.shape[1], np.nan)
    if len(residuals) < _LEAST_WINDOWS:
        return unknown, unknown
    inverse = np.linalg.inv(design.T @ design + variance * np.eye(design.shape[1]))
    weights = design @ inverse
    leverage = np.minimum((weights * design).sum(axis=1), _MOST_LEVERAGE)
    parts = weights * (residuals / (1.0 - leverage))[:, None]
    found = [
        dependence.sequence_inflation(column) or dependence.UNKNOWN
        for column in parts.T
    ]
    phi = np.array([one.phi for one in found])
    freedom = np.array([one.freedom for one in found])
    bayesian = variance * np.diagonal(inverse)
    independent = variance * np.square(weights).sum(axis=0)
    robust = phi * np.square(parts).sum(axis=0)
    deviations = np.sqrt(bayesian + np.maximum(robust - independent, 0.0))
    determined = (bayesian <= _UNDETERMINED**2) & (freedom >= _LEAST_FREEDOM)
    upper = (1.0 + CONFIDENCE) / 2.0
    factors = [
        dependence.student_deviation(normal.quantile(upper), one)
        for one in np.maximum(freedom, _LEAST_FREEDOM)
    ]
    widths = np.where(determined, deviations * np.array(factors), np.nan)
    if_independent = normal.quantile(upper) * np.sqrt(bayesian)
    return widths, len(residuals) * np.square(if_independent / widths)
