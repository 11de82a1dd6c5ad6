"""The Universal Scalability Law: what contention and coherency leave of concurrency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import optimize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_LEVELS: Final = 6
_REACH: Final = 1.5  # times the largest measured concurrency
_WIDEST: Final = 0.5  # of the peak's interval over the peak
_RESAMPLES: Final = 200
_TAILS: Final = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Usl:
    """X(N) = g N / (1 + s (N - 1) + k N (N - 1)), Gunther 1993.

    `per_unit` g is throughput at concurrency 1, `contention` s the share that is
    serial, `coherency` k the cost of agreeing. The peak is at N* = sqrt((1 - s) / k).
    """

    per_unit: Interval
    contention: Interval
    coherency: Interval
    peak_concurrency: Interval | None
    """Where throughput is highest; None where it would have to be extrapolated."""
    peak_throughput: Interval | None
    r_squared: float
    most_measured: float
    refused: str | None
    """Why there is no peak."""

    def throughput(self, concurrency: Floats) -> Floats:
        """Requests a second at each concurrency (N,)."""
        return law(
            concurrency,
            self.per_unit.value,
            self.contention.value,
            self.coherency.value,
        )


def law(n: Floats, per_unit: float, contention: float, coherency: float) -> Floats:
    """X(N) of the law."""
    below = 1.0 + contention * (n - 1.0) + coherency * n * (n - 1.0)
    found: Floats = per_unit * n / below
    return found


def fitted(
    concurrency: Floats, throughput: Floats, rng: np.random.Generator
) -> Usl | None:
    """The law through measured points (N,), by least squares of relative errors.

    Intervals are percentiles over bootstrap samples of the points, drawn within each
    concurrency. None with fewer than six different concurrencies.
    """
    places = np.unique(concurrency)
    if places.size < LEAST_LEVELS:
        return None
    best = _solve(concurrency, throughput)
    drawn = np.array(
        [
            _solve(*_again(concurrency, throughput, places, rng))
            for _ in range(_RESAMPLES)
        ]
    )
    g, s, k = (
        Interval(float(value), *np.percentile(column, _TAILS).tolist())
        for value, column in zip(best, drawn.T, strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        peaks = np.sqrt(np.maximum(1.0 - drawn[:, 1], 0.0) / drawn[:, 2])
        peaks = np.nan_to_num(peaks, nan=np.inf, posinf=np.inf)
        peak = float(np.sqrt(max(1.0 - best[1], 0.0) / best[2])) if best[2] else np.inf
    low, high = (float(end) for end in np.percentile(peaks, _TAILS, method="nearest"))
    most = float(places[-1])
    refused = _refusal(peak, low, high, most)
    predicted = law(concurrency, *best)
    about_mean = ((throughput - throughput.mean()) ** 2).sum()
    top = None
    if refused is None:
        tops = [
            float(law(np.array([p]), *row)[0])
            for p, row in zip(peaks, drawn, strict=True)
        ]
        value = float(law(np.array([peak]), *best)[0])
        top = Interval(value, *np.percentile(tops, _TAILS).tolist())
    return Usl(
        per_unit=g,
        contention=s,
        coherency=k,
        peak_concurrency=None if refused else Interval(peak, low, high),
        peak_throughput=top,
        r_squared=1.0 - float(((throughput - predicted) ** 2).sum() / about_mean),
        most_measured=most,
        refused=refused,
    )


def _refusal(peak: float, low: float, high: float, most: float) -> str | None:
    if not np.isfinite(peak) or peak > _REACH * most:
        told = f"at {peak:.3g}" if np.isfinite(peak) else "nowhere"
        return (
            f"the peak would lie {told}, beyond {_REACH:g} times the largest measured "
            f"concurrency of {most:g}: not extrapolated"
        )
    if not np.isfinite(high) or high - low > _WIDEST * peak:
        return (
            f"the peak's interval [{low:.3g}, {high:.3g}] is wider than "
            f"{_WIDEST:.0%} of it: not told"
        )
    return None


def _again(
    n: Floats, x: Floats, places: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    chosen = np.concatenate(
        [rng.choice(np.flatnonzero(n == place), np.sum(n == place)) for place in places]
    )
    return n[chosen], x[chosen]


def _solve(n: Floats, x: Floats) -> Floats:
    """g, s and k of the least squares.

    N / X is a line in N - 1 and N (N - 1) with coefficients 1 / g, s / g and k / g;
    scaled by X / N its errors are the relative ones. None is negative.
    """
    columns = np.stack([np.ones_like(n), n - 1.0, n * (n - 1.0)], axis=1)
    unit, serial, agreeing = optimize.nnls(columns * (x / n)[:, None], np.ones_like(x))[
        0
    ]
    unit = max(float(unit), 1e-12)
    return np.array([1.0 / unit, min(serial / unit, 1.0), agreeing / unit])
