"""What "all is well" looks like: mean, spread and memory of a signal, learnt or given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from exporter.features.spc.control_charts import FARTHEST_SIGMA
from exporter.numerics import normal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.numerics.normal import Floats

Assumption = Literal["given", "independent", "residuals", "doubtful", "constant"]
"""What the limits rest on. given: nothing was looked at; independent: no correlation
was found; residuals: the samples follow one another and the chart runs on what is new in
each; doubtful: even that is correlated, so false alarms come oftener than said;
constant: the baseline never moved."""

LEAST_SAMPLES: Final = 20
_DOUBTED_BELOW: Final = 0.01
_LAGS: Final = 10
_NOTICED: Final = 2.0
_MOST_CORRELATED: Final = 0.98
_NO_MOVE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Baseline:
    """How a signal is in control. `sigma` is of one sample, `correlation` of neighbours.

    With a correlation the chart runs on residuals: what the sample before does not
    explain, as an AR(1) process has it (Alwan and Roberts 1988).
    """

    mean: float
    sigma: float
    correlation: float = 0.0
    samples: int = 0
    """Learnt from so many; 0 if given."""
    assumption: Assumption = "given"
    normal: bool = True
    """Whether skewness and tails are a normal distribution's, on which limits rest."""

    @property
    def residual_sigma(self) -> float:
        """Deviation of what is new in a sample."""
        return self.sigma * math.sqrt(1.0 - self.correlation**2)

    @property
    def mean_error_sigma(self) -> float:
        """Standard error of the mean, in standardised units; 0 if it was given."""
        if not self.samples:
            return 0.0
        # Of AR(1): long-run over residual deviation, times 1 - correlation as below.
        return 1.0 / math.sqrt(self.samples)

    def standardised(self, value: float, before: float | None) -> float:
        """The sample in deviations; of its residual where neighbours are correlated."""
        expected = 0.0 if before is None else self.correlation * (before - self.mean)
        deviation = self.residual_sigma if before is not None else self.sigma
        z = (value - self.mean - expected) / deviation
        return min(max(z, -FARTHEST_SIGMA), FARTHEST_SIGMA)


def learn(values: Sequence[float], least_sigma: float = 0.0) -> Baseline:
    """The baseline of consecutive samples, at least `LEAST_SAMPLES` of them.

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
        return Baseline(mean, least, 0.0, count, "constant")
    correlation = _neighbours(series)
    residuals = series - mean
    if correlation:
        residuals = residuals[1:] - correlation * residuals[:-1]
    doubtful = _correlated(residuals)
    assumption: Assumption = "residuals" if correlation else "independent"
    return Baseline(
        mean,
        sigma,
        correlation,
        count,
        "doubtful" if doubtful else assumption,
        _is_normal(residuals),
    )


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


def _is_normal(series: Floats) -> bool:
    """Jarque and Bera (1980) at 1 %: skewness and tails."""
    standard = (series - series.mean()) / series.std()
    skewness, tails = float((standard**3).mean()), float((standard**4).mean()) - 3.0
    statistic = series.size / 6.0 * (skewness**2 + tails**2 / 4.0)
    # A chi-square of two degrees of freedom is an exponential.
    return math.exp(-statistic / 2.0) >= _DOUBTED_BELOW
