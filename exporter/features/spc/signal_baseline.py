"""In-control baseline of a signal: mean, spread and correlation, learnt or given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from drift.numerics import dependence, normal
from exporter.features.spc.control_charts import FARTHEST_SIGMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drift.numerics.normal import Floats

Assumption = Literal["given", "independent", "residuals", "doubtful", "constant"]
"""Basis of the control limits. given: not verified; independent: no correlation was found;
residuals: samples are correlated, and the chart runs on residuals; doubtful: even the
residuals are correlated, so false alarms are more frequent than configured; constant:
the baseline never changed.
"""

Refusal = Literal[
    "none", "short_time", "few_samples", "correlated", "tails", "constant", "old_state"
]
"""Reason why there is no lower bound of the run length. short_time: a daily wave would not
show in the baseline; few_samples: too few independent ones, or limits that hold would
blind a chart; correlated: the assumption is doubtful, the level wanders slowly, or large
and small spread alternate; tails: not normal; constant: it never changed; old_state: learnt
by a version that did not measure its errors.
"""

LEAST_SAMPLES: Final = 20
LEAST_SECONDS: Final = 2 * 86_400.0
"""A baseline that is shorter does not show a daily wave."""
LEAST_INDEPENDENT: Final = 400.0
"""Effective samples below which heavy tails cannot be detected."""
_EACH: Final = 0.9
"""Mean, spread and correlation are each within their bound with this probability. Their
errors are nearly independent and normal, and the logarithm of the run length nearly
linear in them: the quantile of the sum is no worse than the sum of the quantiles."""
_DOUBTED_BELOW: Final = 0.01
_TAILS_REFUSED_BELOW: Final = 0.05
_WANDERS_BELOW: Final = 0.02
_LEAST_BLOCKS: Final = 8
_LEAST_LENGTH: Final = 8
_STEP: Final = 0.02
_TINY: Final = 1e-9
_UNBOUNDED: Final = (0.0, 1.0, 0.0)
"""Errors without a bound: limits are those of a known baseline, and none is claimed."""
_LAGS: Final = 10
_NOTICED: Final = 2.0
_MOST_CORRELATED: Final = 0.98
_NO_MOVE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Baseline:
    """A signal in control. `sigma` is of one sample, `correlation` of neighbours.

    With a correlation the chart runs on residuals: the part of a sample that the one before
    does not explain, as in an AR(1) process (Alwan and Roberts 1988).
    """

    mean: float
    sigma: float
    correlation: float = 0.0
    samples: int = 0
    """Number of samples it was learnt from; 0 if given."""
    assumption: Assumption = "given"
    normal: bool = True
    """True if skewness and tails are those of a normal distribution, as limits assume."""
    shift_error: float = field(default=0.0, repr=False)
    """Standardised samples have a mean of at most this, either way, and"""
    spread_error: float = field(default=1.0, repr=False)
    """at most this standard deviation, in nine baselines of ten; 0 and 1 if unknown."""
    refused: Refusal = field(default="none", repr=False)
    effective_samples: float | None = field(default=None, repr=False)
    """Independent samples that would give errors as large; 0 if their dependence could not
    be measured, None if nothing was estimated."""

    @property
    def residual_sigma(self) -> float:
        """Standard deviation of the residuals."""
        return self.sigma * math.sqrt(1.0 - self.correlation**2)

    def standardised(self, value: float, before: float | None) -> float:
        """The sample in deviations; of its residual where neighbours are correlated."""
        expected = 0.0 if before is None else self.correlation * (before - self.mean)
        deviation = self.residual_sigma if before is not None else self.sigma
        z = (value - self.mean - expected) / deviation
        return min(max(z, -FARTHEST_SIGMA), FARTHEST_SIGMA)


def learn(
    values: Sequence[float], least_sigma: float = 0.0, *, seconds: float = math.inf
) -> Baseline:
    """The baseline of consecutive samples, at least `LEAST_SAMPLES` of them.

    Args:
        values: the samples, in order of time.
        least_sigma: the standard deviation is taken to be no less.
        seconds: how long they took.

    Raises:
        ValueError: there are too few, or one is not finite.
    """
    series = np.asarray(values, np.float64)
    count = series.size
    if count < LEAST_SAMPLES or not np.isfinite(series).all():
        raise ValueError(
            f"found {count} samples, {np.isfinite(series).sum()} of them finite; "
            f"want at least {LEAST_SAMPLES} finite ones"
        )
    mean, sigma = float(series.mean()), float(series.std(ddof=1))
    least = max(least_sigma, _NO_MOVE * max(1.0, abs(mean)))
    if sigma <= least:
        return Baseline(mean, least, 0.0, count, "constant", refused="constant")
    correlation = _neighbours(series)
    residuals = series - mean
    if correlation:
        residuals = residuals[1:] - correlation * residuals[:-1]
    doubtful = _correlated(residuals)
    assumption: Assumption = "residuals" if correlation else "independent"
    shift, spread, independent = _errors(residuals, correlation)
    tails = _tails(residuals)
    refusals: dict[Refusal, bool] = {
        "correlated": doubtful
        or _correlated(np.square(residuals))
        or _wanders(residuals),
        "tails": tails < _TAILS_REFUSED_BELOW,
        "few_samples": independent < LEAST_INDEPENDENT,
        "short_time": seconds < LEAST_SECONDS,
        "none": True,
    }
    return Baseline(
        mean,
        sigma,
        correlation,
        count,
        "doubtful" if doubtful else assumption,
        tails >= _DOUBTED_BELOW,
        shift,
        spread,
        next(why for why, applies in refusals.items() if applies),
        independent,
    )


def _errors(residuals: Floats, correlation: float) -> tuple[float, float, float]:
    """Return bounds of the residuals' mean and spread, and the effective samples.

    Correlation that is left in the residuals inflates the variance of their sums by phi.
    A correlation that is off by an error e leaves long-run deviations of
    1 + e / (1 - correlation - e) in them; e after Bartlett (1946). Both count as spread.
    """
    count = residuals.size
    found = dependence.sequence_inflation(residuals)
    if found is None:
        return _UNBOUNDED
    long_run = math.sqrt(found.phi)
    if correlation:
        error = normal.quantile(_EACH) * math.sqrt((1.0 - correlation**2) / count)
        if correlation + error >= 1.0:
            return _UNBOUNDED
        long_run *= (1.0 - correlation) / (1.0 - correlation - error)
    shift = normal.quantile(0.5 * (1.0 + _EACH)) * long_run / math.sqrt(count)
    # The relative variance of a variance is (kurtosis - 1) / n, kurtosis n / freedom.
    sums = count // found.length
    freedom = 2.0 / max(1.0 / found.freedom - 1.0 / sums, _TINY)
    low = normal.chi_square_quantile(1.0 - _EACH, freedom) / freedom
    spread = long_run / math.sqrt(max(low, _TINY))
    return _coarse(shift), _coarse(spread), found.effective_samples(count)


def _coarse(bound: float) -> float:
    """Round up, so that several signals can share solved limits."""
    return math.ceil(bound / _STEP) * _STEP


def _autocorrelation(series: Floats, lag: int) -> float:
    centred = series - series.mean()
    return float(centred[lag:] @ centred[:-lag] / (centred @ centred))


def _neighbours(series: Floats) -> float:
    """Correlation of neighbours, 0 where chance explains it; bias after Kendall (1954)."""
    count = series.size
    found = _autocorrelation(series, 1)
    if abs(found) < _NOTICED / math.sqrt(count):
        return 0.0
    corrected = found + (1.0 + 3.0 * found) / count
    return min(max(corrected, -_MOST_CORRELATED), _MOST_CORRELATED)


def _correlated(series: Floats) -> bool:
    """Ljung and Box (1978) over the first lags, at 1 %."""
    count = series.size
    lags = range(1, min(_LAGS, count // 5) + 1)
    statistic = (
        count
        * (count + 2)
        * sum(_autocorrelation(series, lag) ** 2 / (count - lag) for lag in lags)
    )
    return normal.chi_square_above(statistic, len(lags)) < _DOUBTED_BELOW


def _wanders(series: Floats) -> bool:
    """Return whether sums over blocks of 8 or more samples vary too much, each tested at 2 %."""
    variance, length, sums = float(series.var(ddof=1)), 1, series
    while sums.size >= _LEAST_BLOCKS:
        squares = float(np.square(sums - sums.mean()).sum()) / (length * variance)
        if (
            length >= _LEAST_LENGTH
            and normal.chi_square_above(squares, sums.size - 1) < _WANDERS_BELOW
        ):
            return True
        sums, length = dependence.in_pairs(sums), 2 * length
    return False


def _tails(series: Floats) -> float:
    """Jarque and Bera (1980): how probable such skewness and tails are if normal."""
    standard = (series - series.mean()) / series.std()
    skewness, tails = float((standard**3).mean()), float((standard**4).mean()) - 3.0
    statistic = series.size / 6.0 * (skewness**2 + tails**2 / 4.0)
    # A chi-square of two degrees of freedom is an exponential.
    return math.exp(-statistic / 2.0)
