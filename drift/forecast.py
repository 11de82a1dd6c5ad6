"""When an estimated accuracy will fall below its floor, if that can be said at all.

A straight line through the recent past is believed only if, over that past, it foretold
what came next better than "no change" did. Otherwise accuracy falls by shocks, not by
decay, and no date is given.

Reference: Tashman (2000), rolling-origin evaluation; Kuensch (1989), moving blocks.
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

_FIRST_ORIGIN: Final = 0.5
_MIN_GAIN: Final = 0.1
_CONFIDENCE: Final = 0.05
_MOST_CORRELATION: Final = 0.98
_HALVINGS: Final = 10
_LEAST_WORTH: Final = 2.0
_MANY: Final = 1e6
_UPPER: Final = 0.95


class Outlook(StrEnum):
    """What the past allows to say."""

    TOO_SHORT = "too_short"
    SHOCKS = "shocks"
    STEADY = "steady"
    DECAY = "decay"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Windows until the level falls below the floor, with a 90 % interval.

    Only with the outlook `DECAY`, else NaN; `high` may be infinite. `STEADY` is a trend
    that never gets there, `BELOW` a level that is there already. `gain` is by how much
    the trend's squared error out of sample is below that of "no change".
    """

    outlook: Outlook
    slope_per_window: float
    gain: float
    low: float = float("nan")
    middle: float = float("nan")
    high: float = float("nan")


def forecast(
    values: NDArray[np.floating], floor: float, rng: np.random.Generator
) -> Forecast:
    """Foresee the passage below `floor` of a series of one value a window.

    Formula: least-squares line a + b t over finite values; passage (floor - a) / b; its
    interval from refits to the line plus residuals resampled in blocks of n^(1/2)
    windows. NaN values are gaps.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> decay = 0.95 - 0.001 * np.arange(60) + 0.002 * rng.normal(size=60)
        >>> found = forecast(decay, 0.85, rng)
        >>> found.outlook.value, 38 < found.low < 41 < found.high < 47
        ('decay', True)

    When not to use it: on accuracies estimated without labels where the concept itself
    may have moved; the estimate does not see that.
    """
    series = np.asarray(values, np.float64)
    times = np.flatnonzero(np.isfinite(series)).astype(np.float64)
    series = series[np.isfinite(series)]
    if series.size < MIN_WINDOWS:
        return Forecast(Outlook.TOO_SHORT, float("nan"), float("nan"))
    slope, start = _line(times, series)
    gain, believed = _out_of_sample(times, series, rng)
    now = float(times[-1])
    if start + slope * now < floor:
        return Forecast(Outlook.BELOW, slope, gain)
    if not believed:
        return Forecast(Outlook.SHOCKS, slope, gain)
    if slope >= 0:
        return Forecast(Outlook.STEADY, slope, gain)
    passages = _passages(times, series, floor, rng) - now
    low, middle, high = np.quantile(passages, LEVELS, method="nearest")
    return Forecast(
        Outlook.DECAY, slope, gain, max(float(low), 0.0), float(middle), float(high)
    )


def _line(times: Floats, series: Floats) -> tuple[float, float]:
    centre = times.mean()
    offset = times - centre
    slope = float(offset @ series / (offset @ offset))
    return slope, float(series.mean() - slope * centre)


def _out_of_sample(
    times: Floats, series: Floats, rng: np.random.Generator
) -> tuple[float, bool]:
    """Relative gain of the line over "no change", and whether it is beyond chance.

    "No change" is the mean of all that came before, and the mean of the latest of it:
    the line must beat the first, or it fits noise, and the second, or it fits a jump.
    """
    count = series.size
    ahead = max(count // 8, 1)
    origins = range(int(count * _FIRST_ORIGIN), count - ahead + 1)
    line = _squared_errors(times, series, origins, ahead)
    gains, believed = [], True
    for latest in (count, ahead):
        same = np.array(
            [
                series[max(origin - latest, 0) : origin].mean()
                - series[origin : origin + ahead].mean()
                for origin in origins
            ]
        )
        difference = same**2 - line
        total = float((same**2).sum())
        gains.append(float(difference.sum()) / total if total > 0 else 0.0)
        drawn = difference[_blocks(difference.size, ahead, rng)].sum(axis=1)
        believed &= float((drawn <= 0).mean()) < _CONFIDENCE
    return min(gains), believed and min(gains) > _MIN_GAIN


def _squared_errors(
    times: Floats, series: Floats, origins: range, ahead: int
) -> Floats:
    errors = np.empty(len(origins))
    for index, origin in enumerate(origins):
        slope, start = _line(times[:origin], series[:origin])
        target = slice(origin, origin + ahead)
        foreseen = start + slope * times[target].mean()
        errors[index] = foreseen - series[target].mean()
    return np.asarray(errors**2)


def _passages(
    times: Floats, series: Floats, floor: float, rng: np.random.Generator
) -> Floats:
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
    wanted, heavier = _dependence(times, residuals)
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
    return np.where(falling, passages, np.inf)


def _ratio(variance: float, drawn: Floats) -> float:
    found = float(drawn.var())
    return variance / found if found > 0 else 0.0


def _dependence(times: Floats, residuals: Floats) -> tuple[tuple[float, float], float]:
    """Variances of the line's middle and slope, and by how much tails are heavier.

    Blocks no longer than n^(1/2) do not hold what hangs together for longer. So this is
    what noise of a first-order autoregression does to the line, whose correlation is the
    one that makes residuals as correlated as they are: those of a fitted line are less so
    than the noise. The tails are those of Student's t with as many degrees of freedom as
    the residuals are worth (Satterthwaite).
    """
    offset = times - times.mean()
    basis = np.stack((np.ones_like(offset), offset), axis=1)
    basis /= np.sqrt((basis**2).sum(axis=0))
    apart = np.abs(times[:, None] - times)
    near = np.diff(times) == 1
    total = float(residuals @ residuals)
    if total <= 0 or not near.any():
        return (0.0, 0.0), 1.0
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
    mean, slope = total / trace * line / np.array([times.size, offset @ offset])
    from scipy.special import stdtrit  # noqa: PLC0415 - 0.1 s, not at import

    worth = max(trace**2 / float((seen**2).sum()), _LEAST_WORTH)
    heavier = float(stdtrit(worth, _UPPER) / stdtrit(_MANY, _UPPER))
    return (float(mean), float(slope)), heavier


def _blocks(count: int, length: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of `RESAMPLES` resamples of `count` values in moving circular blocks."""
    number = -(-count // length)
    starts = rng.integers(0, count, size=(RESAMPLES, number, 1))
    places = (starts + np.arange(length)) % count
    return np.asarray(places.reshape(RESAMPLES, -1)[:, :count])
