"""Throughput over concurrency: the Universal Scalability Law, and the knee of the curve.

X(N) = g N / (1 + s (N - 1) + k N (N - 1)), Gunther 1993. g is throughput at concurrency
1, s the share that is serial, k the cost of agreeing; the peak is at sqrt((1 - s) / k).

Each concurrency has conditions of its own, and none is exactly on the law, so that the
repetitions at one differ by less than the concurrencies do from the law. The intervals
are therefore of the differences between concurrencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import optimize

from loadtests.capacity.search_report import Bounds, KneeReport, UslReport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_LEVELS: Final = 6
_REACH: Final = 1.5  # times the largest measured concurrency
_WIDEST: Final = 0.5  # of the peak's interval over the peak
_DRAWS: Final = 2000
_TAILS: Final = (2.5, 97.5)
_LEAST_POINTS: Final = 4
_LEAST_BEND: Final = 0.05
_AGREE_RATIO: Final = 1.5
_FINE: Final = 1000
_FARTHEST: Final = 1e6
_SINGLE: Final = "one repetition of each concurrency: no intervals"


def law(
    n: Floats,
    per_unit: float | Floats,
    contention: float | Floats,
    coherency: float | Floats,
) -> Floats:
    """X(N) of the law."""
    below = 1.0 + contention * (n - 1.0) + coherency * n * (n - 1.0)
    found: Floats = per_unit * n / below
    return found


def fitted(
    concurrency: Floats, throughput: Floats, rng: np.random.Generator
) -> UslReport | None:
    """The law through measured points (N,), by least squares of relative errors.

    Intervals are of the means of each concurrency about the law (`_drawn`). With one
    repetition of each they are absent: nothing then tells noise from a lack of fit.
    None with fewer than six different concurrencies.
    """
    places, repetitions = np.unique(concurrency, return_counts=True)
    if places.size < LEAST_LEVELS:
        return None
    best = _solve(concurrency, throughput)
    single = repetitions.max() < 2  # noqa: PLR2004
    drawn = _drawn(concurrency, throughput, places, rng)
    g, s, k = (
        Bounds(estimate=float(value), low=None, high=None)
        if single
        else _bounds(value, *np.percentile(column, _TAILS))
        for value, column in zip(best, drawn.T, strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        peaks = np.sqrt(np.maximum(1.0 - drawn[:, 1], 0.0) / drawn[:, 2])
        peaks = np.nan_to_num(peaks, nan=np.inf, posinf=np.inf)
        peak = float(np.sqrt(max(1.0 - best[1], 0.0) / best[2])) if best[2] else np.inf
    low, high = (float(end) for end in np.percentile(peaks, _TAILS, method="nearest"))
    most = float(places[-1])
    refused = _SINGLE if single else _refusal(peak, low, high, most)
    predicted = law(concurrency, *best)
    about_mean = ((throughput - throughput.mean()) ** 2).sum()
    top = None
    if refused is None:
        # Where a draw has no peak, the law approaches g / s.
        reached = np.minimum(peaks, _FARTHEST)
        tops = law(reached, *drawn.T)
        value = float(law(np.array([peak]), *best)[0])
        top = _bounds(value, *np.percentile(tops, _TAILS))
    return UslReport(
        per_unit=g,
        contention=s,
        coherency=k,
        peak_concurrency=None if refused else _bounds(peak, low, high),
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


def _drawn(n: Floats, x: Floats, places: Floats, rng: np.random.Generator) -> Floats:
    """g, s and k (R, 3) as uncertain as the means of L concurrencies leave them.

    The law is linear in 1 / g, s / g and k / g (`_columns`). These are drawn from their
    multivariate t distribution with L - 3 degrees of freedom, whose scale is that of the
    means' relative residuals: their percentiles are the intervals of linear regression.
    None is negative.
    """
    means = np.array([x[n == place].mean() for place in places])
    design = _columns(places, means)
    linear, *_ = np.linalg.lstsq(design, np.ones_like(means), rcond=None)
    rest = 1.0 - design @ linear
    freedom = places.size - linear.size
    scale = float(rest @ rest) / freedom
    covariance = scale * np.linalg.inv(design.T @ design)
    spread = np.sqrt(freedom / rng.chisquare(freedom, _DRAWS))[:, None]
    normal = rng.multivariate_normal(np.zeros(linear.size), covariance, _DRAWS)
    unit, serial, agreeing = np.maximum(linear + spread * normal, 0.0).T
    unit = np.maximum(unit, 1e-12)
    found: Floats = np.stack(
        [1.0 / unit, np.minimum(serial / unit, 1.0), agreeing / unit], axis=1
    )
    return found


def _columns(n: Floats, x: Floats) -> Floats:
    """N / X as a line in N - 1 and N (N - 1), scaled by X / N: errors are relative."""
    columns = np.stack([np.ones_like(n), n - 1.0, n * (n - 1.0)], axis=1)
    scaled: Floats = columns * (x / n)[:, None]
    return scaled


def _solve(n: Floats, x: Floats) -> Floats:
    """g, s and k of the least squares of relative errors (`_columns`); none is negative."""
    unit, serial, agreeing = optimize.nnls(_columns(n, x), np.ones_like(x))[0]
    unit = max(float(unit), 1e-12)
    return np.array([1.0 / unit, min(serial / unit, 1.0), agreeing / unit])


def _bounds(estimate: float, low: float, high: float) -> Bounds:
    """The ends never exclude the estimate, which is kept from being negative."""
    low, high = min(low, estimate), max(high, estimate)
    return Bounds(estimate=float(estimate), low=float(low), high=float(high))


def kneedle(x: Floats, y: Floats) -> float | None:
    """The point of a concave rising curve that is highest above its chord.

    Satopaa et al. 2011: both axes scaled to 0..1, the knee maximises y - x; made to
    rise first. None where the curve is too short or nowhere bends by a twentieth.
    """
    order = np.argsort(x)
    x, y = x[order], optimize.isotonic_regression(y[order]).x
    if x.size < _LEAST_POINTS or y[-1] <= y[0]:
        return None
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    place = int(np.argmax(above))
    return float(x[place]) if above[place] >= _LEAST_BEND else None


def knee(concurrency: Floats, throughput: Floats, usl: UslReport | None) -> KneeReport:
    """Return the knee by both methods, from means over repetitions."""
    places = np.unique(concurrency)
    means = np.array([throughput[concurrency == place].mean() for place in places])
    by_curve = kneedle(places, means)
    by_law = None if usl is None else _by_law(usl)
    agree = None
    if by_curve is not None and by_law is not None:
        agree = max(by_curve, by_law) <= _AGREE_RATIO * min(by_curve, by_law)
    return KneeReport(kneedle=by_curve, law=by_law, agree=agree)


def _by_law(usl: UslReport) -> float | None:
    reach = np.linspace(1.0, _REACH * usl.most_measured, _FINE)
    estimates = (usl.per_unit, usl.contention, usl.coherency)
    highest = law(reach, *(each.estimate for each in estimates)).max()
    meets = float(highest) / usl.per_unit.estimate
    return meets if meets < usl.most_measured else None
