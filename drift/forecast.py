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
    slope, start = _line(times, series)
    fitted = start + slope * times
    length = round(series.size**0.5)
    # Residuals of a fitted line are smaller than the noise by two degrees of freedom,
    # and sums over blocks of them by about one more block.
    freedom = series.size - 2 - length
    residuals = (series - fitted) * np.sqrt(series.size / freedom)
    drawn = fitted + residuals[_blocks(series.size, length, rng)]
    centre = times.mean()
    offset = times - centre
    slopes = drawn @ offset / (offset @ offset)
    starts = drawn.mean(axis=1) - slopes * centre
    falling = slopes < 0
    safe = np.where(falling, slopes, -1.0)
    return np.where(falling, (floor - starts) / safe, np.inf)


def _blocks(count: int, length: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of `RESAMPLES` resamples of `count` values in moving circular blocks."""
    number = -(-count // length)
    starts = rng.integers(0, count, size=(RESAMPLES, number, 1))
    places = (starts + np.arange(length)) % count
    return np.asarray(places.reshape(RESAMPLES, -1)[:, :count])
