"""Mode `ab` many times over: windows of two that are alike, looked at after each.

The same statistics as exporter/features/comparison/production_windows.py, for every look of a run at once;
tests/exporter/features/comparison holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from simulated_pairs import boundaries

from exporter.features.comparison.confidence import WARM_UP_PAIRS
from exporter.histograms.buckets import BUCKETS_PER_OCTAVE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_OCTAVES = 16
_BINS = _OCTAVES * BUCKETS_PER_OCTAVE
_LOWEST = 2.0**-16


@dataclass(frozen=True)
class Traffic:
    """What two models serve, window by window, in seconds."""

    champion: float = 90.0
    """Mean number of requests in a window."""
    challenger: float = 10.0
    growth: float = 10.0
    """By which the load, that both feel, grows over the run."""
    unrest: float = 0.3
    """Spread of what meets both in a window, of the logarithm."""
    own_unrest: float = 0.1
    """And of what meets each for itself."""
    ratio: float = 1.0
    """The challenger's latency over the champion's."""

    def draw(self, rng: np.random.Generator, windows: int) -> tuple[Served, Served]:
        """Both, of one run."""
        rise = np.linspace(1, self.growth, windows)
        load = 0.01 * rise * np.exp(rng.normal(0, self.unrest, windows))
        champion, challenger = (
            self._side(rng, load * factor, mean)
            for mean, factor in (
                (self.champion, 1.0),
                (self.challenger, self.ratio),
            )
        )
        return champion, challenger

    def _side(self, rng: np.random.Generator, load: Floats, mean: float) -> Served:
        counts = np.maximum(rng.poisson(mean, load.size), 1)
        own = load * np.exp(rng.normal(0, self.own_unrest, load.size))
        window = np.repeat(np.arange(load.size), counts)
        return Served(window, own[window] * rng.lognormal(0, 0.5, window.size))


@dataclass(frozen=True)
class Served:
    """Requests of one side: of which window, and how long each took."""

    window: NDArray[np.int64]
    seconds: Floats

    @property
    def counts(self) -> Floats:
        """Requests by window."""
        return np.bincount(self.window).astype(float)

    @property
    def means(self) -> Floats:
        """Seconds by window."""
        return np.bincount(self.window, self.seconds) / self.counts

    @property
    def beyond(self) -> Floats:
        """By window and bin: the share of requests that took longer than the bin."""
        scaled = BUCKETS_PER_OCTAVE * np.log2(self.seconds / _LOWEST)
        bins = np.clip(np.ceil(scaled), 0, _BINS - 1).astype(np.int64)
        windows = int(self.window[-1]) + 1
        counted = np.bincount(self.window * _BINS + bins, minlength=windows * _BINS)
        below = counted.reshape(windows, _BINS).cumsum(axis=1)
        found: Floats = 1 - below / below[:, -1:]
        return found


def window_decisions(
    traffic: Traffic,
    quantiles: tuple[float, ...],
    *,
    runs: int,
    windows: int,
    seed: int,
    alpha: float = 0.05,
) -> dict[str, NDArray[np.int64]]:
    """After how many windows each run calls mean and quantiles different; 0 for never.

    `windows` is below MOST_WINDOWS, where two become one.
    """
    rng = np.random.default_rng(seed)
    limits = boundaries(windows, alpha, 100.0)[1:]
    limits /= np.sqrt(np.arange(1, windows + 1))
    decided: dict[str, list[int]] = {"mean": []}
    decided.update({_name(q): [] for q in quantiles})
    for _ in range(runs):
        x, y = traffic.draw(rng, windows)
        weights = 2 * x.counts * y.counts / (x.counts + y.counts)
        decided["mean"].append(_first(_mean_out(weights, x.means, y.means, limits)))
        beyond = (x.beyond, y.beyond)
        totals = [
            np.cumsum(weights[:, None] * side, axis=0) / np.cumsum(weights)[:, None]
            for side in beyond
        ]
        for q in quantiles:
            out = _quantile_out(q, weights, beyond, totals, limits)
            decided[_name(q)].append(_first(out))
    return {name: np.array(found) for name, found in decided.items()}


def _name(q: float) -> str:
    return f"p{100 * q:g}"


def _first(out: NDArray[np.bool_]) -> int:
    out[: WARM_UP_PAIRS - 1] = False
    return int(out.argmax()) + 1 if out.any() else 0


def _mean_out(
    weights: Floats, x: Floats, y: Floats, limits: Floats
) -> NDArray[np.bool_]:
    x, y = weights * x, weights * y
    moved, spread = np.cumsum(y - x), np.sqrt(np.cumsum((y - x) ** 2))
    known = np.cumsum(x) ** 2 > limits**2 * np.cumsum(x * x)
    out: NDArray[np.bool_] = known & (np.abs(moved) > limits * spread)
    return out


def _quantile_out(
    q: float,
    weights: Floats,
    beyond: tuple[Floats, Floats],
    totals: list[Floats],
    limits: Floats,
) -> NDArray[np.bool_]:
    """By look: whether a ratio between 1 and the estimate is rejected already.

    The interval is what is kept on the way from the estimate, to whole bins.
    """
    x, y = (_places(total, q) for total in totals)
    out = np.zeros(weights.size, np.bool_)
    for sign in (1, -1):
        moved = sign
        while (sign * (y - x) > abs(moved)).any():
            rejected = _rejected(q, weights, beyond, totals, limits, moved)
            out |= rejected & (sign * (y - x) > abs(moved))
            moved += sign
    return out


def _rejected(
    q: float,
    weights: Floats,
    beyond: tuple[Floats, Floats],
    totals: list[Floats],
    limits: Floats,
    moved: int,
) -> NDArray[np.bool_]:
    """By look: whether the ratio of so many bins is rejected."""
    shifted = np.full_like(totals[1], 0.0 if moved > 0 else 1.0)
    if moved > 0:
        shifted[:, :-moved] = totals[1][:, moved:]
    else:
        shifted[:, -moved:] = totals[1][:, :moved]
    place = _places((totals[0] + shifted) / 2, q)
    there = np.clip(place + moved, 0, _BINS - 1)
    steps = weights[:, None] * (beyond[1][:, there] - beyond[0][:, place])
    walk = np.diagonal(np.cumsum(steps, axis=0))
    spread = np.sqrt(np.diagonal(np.cumsum(steps * steps, axis=0)))
    out: NDArray[np.bool_] = (np.abs(walk) >= limits * spread) & (spread > 0)
    return out


def _places(beyond: Floats, q: float) -> NDArray[np.int64]:
    """By look: the first bin with no more than 1 - q beyond it."""
    return np.minimum(np.count_nonzero(beyond > 1 - q, axis=1), _BINS - 1)
