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
_MOST_CORRELATION: Final = 0.98
_HALVINGS: Final = 10
_LEAST_WORTH: Final = 2.0
_MANY: Final = 1e6
_UPPER: Final = 0.95


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
    return Forecast(
        Outlook.DECAY,
        max(float(min(low, ends[0])), 0.0),
        float(middle),
        float(max(high, ends[1])),
        _effective(times, series - (start + slope * times)),
    )


@dataclass(frozen=True, slots=True)
class _Bend:
    """The quadratic part of a series: `size` of `shape`, which is orthogonal to lines."""

    shape: Floats
    """Coefficients of 1, t and t^2 from the middle of the times on; of unit length."""
    size: float
    deviation: float
    heavier: float
    """Factor by which the tails of its error are heavier than normal ones."""

    @classmethod
    def of(cls, times: Floats, series: Floats) -> _Bend:
        """Fit by least squares, with a first-order autoregression for the noise."""
        basis = np.vander(times - times.mean(), 3, increasing=True)
        directions, triangle = np.linalg.qr(basis)
        residuals = series - directions @ (directions.T @ series)
        variances, heavier = _dependence(times, residuals, basis)
        shape = np.asarray(np.linalg.solve(triangle, np.eye(3)[2]), np.float64)
        return cls(
            shape, float(directions[:, 2] @ series), variances[2] ** 0.5, heavier
        )

    @property
    def is_sure(self) -> bool:
        """Return whether the curvature exceeds that of a straight line with noise."""
        from scipy.special import stdtrit  # noqa: PLC0415 - 0.1 s, not at import

        limit = self.heavier * float(stdtrit(_MANY, 1.0 - _CURVATURE / 2))
        return abs(self.size) > limit * self.deviation


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
    from scipy.special import stdtrit  # noqa: PLC0415 - 0.1 s, not at import

    (_, variance), heavier = _line_dependence(times, series - (start + slope * times))
    limit = heavier * float(stdtrit(_MANY, 1.0 - _CONFIDENCE / 2))
    return bool(abs(slope) > limit * variance**0.5)


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
    wanted, heavier = _line_dependence(times, residuals)
    middles, slopes = (
        (spread - spread.mean())
        * heavier
        * np.sqrt(max(least, _ratio(variance, spread)))
        for spread, variance in zip((middles, slopes), wanted, strict=True)
    )
    slopes += slope
    falling = slopes < 0
    safe = np.where(falling, slopes, -1.0)
    passages = centre + (floor - series.mean() - middles) / safe
    bends = bend.size + bend.deviation * bend.heavier * rng.normal(size=slopes.size)
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


def _effective(times: Floats, residuals: Floats) -> float:
    """Return how many independent windows give a slope as precise.

    The slope's variance if residuals were independent over what it is; two windows
    are used up by the line.
    """
    (_, variance), heavier = _line_dependence(times, residuals)
    offset = times - times.mean()
    count = residuals.size
    independent = float(residuals @ residuals) / (count - 2) / float(offset @ offset)
    return count * min(independent / max(heavier**2 * variance, _TINY), 1.0)


def _line_dependence(
    times: Floats, residuals: Floats
) -> tuple[tuple[float, float], float]:
    """Variances of the line's middle and slope, and by how much tails are heavier."""
    offset = times - times.mean()
    basis = np.stack((np.ones_like(offset), offset), axis=1)
    (mean, slope), heavier = _dependence(times, residuals, basis)
    return (mean / times.size, slope / float(offset @ offset)), heavier


def _dependence(
    times: Floats, residuals: Floats, basis: Floats
) -> tuple[list[float], float]:
    """Variances of a fit along each of the directions, and by how much tails are heavier.

    The directions are the columns of `basis` (n, k), each less those before it, of length 1.
    Blocks no longer than n^(1/2) do not contain correlations over longer times. So this is
    what noise of a first-order autoregression does to the fit, whose correlation is the
    one that makes residuals as correlated as they are: those of a fitted curve are less so
    than the noise. The tails are those of Student's t with as many degrees of freedom as
    the residuals are worth (Satterthwaite).
    """
    basis = np.linalg.qr(basis)[0]
    apart = np.abs(times[:, None] - times)
    near = np.diff(times) == 1
    total = float(residuals @ residuals)
    if total <= 0 or not near.any():
        return [0.0] * basis.shape[1], 1.0
    found = float((residuals[1:] * residuals[:-1])[near].sum()) / total

    def of_residuals(correlation: float) -> tuple[Floats, Floats]:
        noise = correlation**apart
        along = basis @ (basis.T @ noise)
        inner = basis.T @ noise @ basis
        return noise - along - along.T + basis @ inner @ basis.T, np.diagonal(inner)

    low, high = 0.0, _MOST_CORRELATION
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        seen, _ = of_residuals(middle)
        lagged = float(np.diagonal(seen, 1)[near].sum() / np.trace(seen))
        low, high = (middle, high) if lagged < found else (low, middle)
    seen, line = of_residuals(low)
    trace = float(np.trace(seen))
    from scipy.special import stdtrit  # noqa: PLC0415 - 0.1 s, not at import

    worth = max(trace**2 / float((seen**2).sum()), _LEAST_WORTH)
    heavier = float(stdtrit(worth, _UPPER) / stdtrit(_MANY, _UPPER))
    return [float(total / trace * variance) for variance in line], heavier


def _blocks(count: int, length: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of `RESAMPLES` resamples of `count` values in moving circular blocks."""
    number = -(-count // length)
    starts = rng.integers(0, count, size=(RESAMPLES, number, 1))
    places = (starts + np.arange(length)) % count
    return np.asarray(places.reshape(RESAMPLES, -1)[:, :count])
