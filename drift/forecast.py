"""Forecast of when an estimated accuracy will fall below its floor.

A date is given only for a straight trend, and its interval holds what curvature the past
does not rule out. Whether the past is flat, a trend or a shift from one
level to another is decided between the three with first-order autoregressive noise, since
correlated noise resembles either.

Reference: Schwarz (1978), the information criterion; Kuensch (1989), moving blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics import normal
from drift.numerics.dependence import Inflation, fit_inflations, widening

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MIN_WINDOWS: Final = 24
RESAMPLES: Final = 400
# Percentiles of a bootstrap are too narrow on short series: these ones cover 88 % (noise
# with correlation 0.5) to 92 % (independent noise) of passages in simulation.
LEVELS: Final = (0.02, 0.5, 0.98)
LEVELS_CURVED: Final = (0.05, 0.95)

_CONFIDENCE: Final = 0.05
"""Significance of the test for a trend, two-sided."""
_CURVATURE: Final = 0.05
"""Significance of the test for curvature, two-sided: no date is better than a wrong one."""
_CORRELATIONS: Final = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)
_SHIFT_COST: Final = 3.0
"""Parameters that a shift counts for: the new level, and where it is of many places."""
_SHORTEST_LEVEL: Final = 3
_TINY: Final = 1e-300
_INTERVAL: Final = 0.9


class Outlook(StrEnum):
    """The kind of forecast that the history supports."""

    TOO_SHORT = "too_short"
    FLAT = "flat"
    SHOCKS = "shocks"
    STEADY = "steady"
    DECAY = "decay"
    CURVED = "curved"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Windows until the level falls below the floor, with a 90 % interval.

    Only with the outlook `DECAY`, else NaN; `high` may be infinite. `FLAT` is no trend,
    `SHOCKS` a shift of the level, `CURVED` a trend that speeds up or slows down, which no
    line foretells, `STEADY` one away from the floor, `BELOW` a level that is below it
    already.
    """

    outlook: Outlook
    low: float = float("nan")
    middle: float = float("nan")
    high: float = float("nan")
    effective_windows: float = float("nan")
    """Independent windows that would give an interval of the same width."""


def forecast(
    values: NDArray[np.floating], floor: float, rng: np.random.Generator
) -> Forecast:
    """Foresee the passage below `floor` of a series of one value a window.

    Formula: least-squares line a + b t over finite values; passage (floor - a) / b; its
    interval from refits to the line plus residuals resampled in blocks of n^(1/2)
    windows, and at least as wide as that of the passages of parabolas through the series.
    NaN values are gaps.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> decay = 0.95 - 0.001 * np.arange(60) + 0.002 * rng.normal(size=60)
        >>> found = forecast(decay, 0.85, rng)
        >>> found.outlook.value, 30 < found.low < 41 < found.high < 60
        ('decay', True)

    When not to use it: on accuracies estimated without labels where the concept itself
    may have drifted; the estimate does not show that.
    """
    series = np.asarray(values, np.float64)
    times = np.flatnonzero(np.isfinite(series)).astype(np.float64)
    series = series[np.isfinite(series)]
    if series.size < MIN_WINDOWS:
        return Forecast(Outlook.TOO_SHORT)
    slope, start = _line(times, series)
    now = float(times[-1])
    shape, level = _shape(times, series)
    if shape is Outlook.DECAY and not _is_trend(times, series, slope, start):
        shape, level = Outlook.FLAT, float(series.mean())
    if level < floor:
        return Forecast(Outlook.BELOW)
    if shape is not Outlook.DECAY:
        return Forecast(shape)
    if slope >= 0:
        return Forecast(Outlook.STEADY)
    bend = _Bend.of(times, series)
    if bend.is_sure:
        return Forecast(Outlook.CURVED)
    straight, curved = _passages(times, series, floor, bend, rng)
    low, middle, high = np.quantile(straight - now, LEVELS, method="nearest")
    ends = np.quantile(curved - now, LEVELS_CURVED, method="nearest")
    _, (_, of_slope) = _line_errors(times, series - (start + slope * times))
    return Forecast(
        Outlook.DECAY,
        max(float(min(low, ends[0])), 0.0),
        float(middle),
        float(max(high, ends[1])),
        of_slope.effective_samples(series.size, _INTERVAL),
    )


@dataclass(frozen=True, slots=True)
class _Bend:
    """The quadratic part of a series: `size` of `shape`, which is orthogonal to lines."""

    shape: Floats
    """Coefficients of 1, t and t^2 from the middle of the times on; of unit length."""
    size: float
    deviation: float
    """Of its error, if windows were independent."""
    inflation: Inflation

    @classmethod
    def of(cls, times: Floats, series: Floats) -> _Bend:
        """Fit by least squares, with a first-order autoregression for the noise."""
        basis = np.vander(times - times.mean(), 3, increasing=True)
        directions, triangle = np.linalg.qr(basis)
        residuals = series - directions @ (directions.T @ series)
        shape = np.asarray(np.linalg.solve(triangle, np.eye(3)[2]), np.float64)
        return cls(
            shape,
            float(directions[:, 2] @ series),
            _variance(residuals, 3) ** 0.5,
            fit_inflations(times, residuals, basis)[2],
        )

    @property
    def is_sure(self) -> bool:
        """Return whether the curvature exceeds that of a straight line with noise."""
        limit = self.inflation.deviations(normal.quantile(1.0 - _CURVATURE / 2))
        return abs(self.size) > limit * self.deviation

    def drawn(self, rng: np.random.Generator, number: int) -> Floats:
        """Return sizes that the past does not rule out, (number,)."""
        spread = self.deviation * self.inflation.phi**0.5 * _heavier(self.inflation)
        return np.asarray(self.size + spread * rng.normal(size=number))


def _line(times: Floats, series: Floats) -> tuple[float, float]:
    centre = times.mean()
    offset = times - centre
    slope = float(offset @ series / (offset @ offset))
    return slope, float(series.mean() - slope * centre)


def _shape(times: Floats, series: Floats) -> tuple[Outlook, float]:
    """Flat, a shift or a trend (DECAY), and the level that it ends at.

    The one with the least Schwarz criterion, each at its best correlation of the noise.
    """
    count = series.size
    if np.ptp(series) == 0:
        return Outlook.FLAT, float(series[0])
    places = np.arange(_SHORTEST_LEVEL, count - _SHORTEST_LEVEL + 1)
    shifts = np.arange(count) >= places[:, None]
    columns = np.vstack((np.zeros(count), times, shifts)).astype(np.float64)
    criteria = np.min(
        [_criteria(times, series, columns, c) for c in _CORRELATIONS], axis=0
    )
    parameters = np.array([0.0, 1.0, *[_SHIFT_COST] * places.size])
    best = int((criteria + parameters * np.log(count)).argmin())
    if best == 0:
        return Outlook.FLAT, float(series.mean())
    if best == 1:
        slope, start = _line(times, series)
        return Outlook.DECAY, start + slope * float(times[-1])
    return Outlook.SHOCKS, float(series[places[best - 2] :].mean())


def _criteria(
    times: Floats, series: Floats, columns: Floats, correlation: float
) -> Floats:
    """-2 log likelihood, but for a constant, of a mean plus each column by itself.

    The noise is a first-order autoregression: n log(s2) plus its log determinant.
    """
    carried = correlation ** np.diff(times)
    variances = np.concatenate(([1.0], 1.0 - carried**2))

    def white(rows: Floats) -> Floats:
        found = rows.copy()
        found[..., 1:] -= carried * rows[..., :-1]
        return np.asarray(found / np.sqrt(variances))

    one = white(np.ones(series.size))
    one /= np.sqrt(one @ one)
    rest, others = white(series), white(columns)
    rest -= one * (one @ rest)
    others -= np.outer(others @ one, one)
    gained = (others @ rest) ** 2 / np.maximum((others**2).sum(axis=1), _TINY)
    left = np.maximum(rest @ rest - gained, _TINY)
    return np.asarray(series.size * np.log(left) + np.log(variances).sum())


def _is_trend(times: Floats, series: Floats, slope: float, start: float) -> bool:
    """Return whether the slope exceeds that of a constant with correlated noise."""
    (_, deviation), (_, found) = _line_errors(times, series - (start + slope * times))
    limit = found.deviations(normal.quantile(1.0 - _CONFIDENCE / 2))
    return bool(abs(slope) > limit * deviation)


def _passages(
    times: Floats, series: Floats, floor: float, bend: _Bend, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Times at which resampled lines, and these with curvature, pass the floor."""
    centre = times.mean()
    offset = times - centre
    slope, start = _line(times, series)
    residuals = series - (start + slope * times)
    length = round(series.size**0.5)
    drawn = residuals[_blocks(series.size, length, rng)]
    middles = drawn.mean(axis=1)
    slopes = drawn @ offset / (offset @ offset)
    # Residuals of a fitted line are smaller than the noise by two degrees of freedom,
    # and sums over blocks of them by about one more block.
    least = series.size / (series.size - 2 - length)
    deviations, inflations = _line_errors(times, residuals)
    middles, slopes = (
        (spread - spread.mean())
        * _heavier(found)
        * np.sqrt(max(least, _ratio(found.phi * deviation**2, spread)))
        for spread, deviation, found in zip(
            (middles, slopes), deviations, inflations, strict=True
        )
    )
    slopes += slope
    falling = slopes < 0
    safe = np.where(falling, slopes, -1.0)
    passages = centre + (floor - series.mean() - middles) / safe
    bends = bend.drawn(rng, slopes.size)
    above = series.mean() + middles - floor
    lines = np.stack([above, slopes, np.zeros_like(slopes)])
    terms = np.asarray(lines + bend.shape[:, None] * bends, np.float64)
    curved = _first_passages(terms, float(times[-1] - centre))
    return np.where(falling, passages, np.inf), centre + curved


def _first_passages(terms: Floats, now: float) -> Floats:
    """The first time from `now` on at which each of parabolas (3, n) is at most 0.

    `terms` are coefficients of 1, t and t^2; infinite where that is never.
    """
    constant, linear, square = terms
    level = constant + now * (linear + now * square)
    slope = linear + 2.0 * now * square
    within = slope * slope - 4.0 * square * level
    root = np.sqrt(np.maximum(within, 0.0))
    # The nearer root without cancellation, and without division by what may be 0.
    below = root - slope
    ahead = np.divide(
        2.0 * level, below, out=np.full_like(level, np.inf), where=below > 0
    )
    never = (within < 0) | (ahead < 0)
    return now + np.where(level <= 0, 0.0, np.where(never, np.inf, ahead))


def _ratio(variance: float, drawn: Floats) -> float:
    found = float(drawn.var())
    return variance / found if found > 0 else 0.0


def _variance(residuals: Floats, fitted: int) -> float:
    """Of one window, from the residuals of a fit of so many parameters."""
    return float(residuals @ residuals) / (residuals.size - fitted)


def _line_errors(
    times: Floats, residuals: Floats
) -> tuple[tuple[float, float], list[Inflation]]:
    """Deviations of the line's middle and slope of independent windows; their inflations."""
    offset = times - times.mean()
    basis = np.stack((np.ones_like(offset), offset), axis=1)
    variance = _variance(residuals, 2)
    deviations = (variance / times.size) ** 0.5, (variance / (offset @ offset)) ** 0.5
    return deviations, fit_inflations(times, residuals, basis)


def _heavier(found: Inflation) -> float:
    """Factor by which tails are heavier than normal ones."""
    return widening(found.freedom, _INTERVAL)


def _blocks(count: int, length: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of `RESAMPLES` resamples of `count` values in moving circular blocks."""
    number = -(-count // length)
    starts = rng.integers(0, count, size=(RESAMPLES, number, 1))
    places = (starts + np.arange(length)) % count
    return np.asarray(places.reshape(RESAMPLES, -1)[:, :count])
