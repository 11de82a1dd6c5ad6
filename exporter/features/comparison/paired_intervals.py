"""Intervals that hold at all times: the ratio of two latency quantiles, shares of pairs.

Quantiles. For a ratio r, divide the challenger's latencies by r, take the quantile of both together
and count who is beyond it. Where r is the truth, a pair of which just one is beyond it
is as likely to be the one as the other: a fair walk, one step a discordant pair, whose
number is its variance. The ratios whose walk stays within the normal mixture's boundary
are the interval.

At any one look this is an exact sign test where the two of a pair are exchangeable: to
swap them moves no joint quantile. Over all looks the joint quantile moves, by an order
less than the walk does (Bahadur 1966, Kiefer 1967), so that there it is asymptotic;
docs/comparisons.md has how well it holds in simulations. A density
that differs between the two enters by its ratio alone, which widens the boundary by
sqrt(2) at most. The one-sample sequences of Howard and Ramdas (Bernoulli 2022), one for
each side, would be exact and need about four times as many pairs.

Shares. For what has a few outcomes the likelihood is known, and its mean over a prior
divided by the likelihood of the truth is a martingale: the truth's likelihood ever falls
below alpha times that mean with probability alpha at most (Ville 1939; Robbins 1970; as
the "prior-posterior ratio" in Waudby-Smith and Ramdas, NeurIPS 2020). Exact for every
count, zero included. That is so for independent pairs. Correlated ones count as pairs /
phi with their shares, phi from `drift.numerics.dependence`. No I/O, no clock, no scipy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.dependence import sequence_inflation
from exporter.features.comparison.confidence import (
    Interval,
    boundary,
    doubt,
    open_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drift.numerics.dependence import Inflation
    from exporter.features.comparison.confidence import Values

MIXTURE_DISCORDANT: Final = 75.0
"""The boundary is tightest at eight times as many discordant pairs."""
_HALVINGS: Final = 50
_FARTHEST: Final = 1e6
_SAME: Final = 1e-9
_ALONE: Final = 2
"""Values at the pooled quantile without ties: one of each model."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The count at one ratio: `lead` of the challenger among `discordant` pairs."""

    lead: float
    discordant: float
    widening: float = 1.0
    """Factor by which different densities widen the boundary."""

    def within(self, alpha: float, found: Inflation) -> bool:
        """Return whether the walk is where a fair one of that inflation stays."""
        if not self.discordant:
            return True
        z = boundary(self.discordant / found.phi, alpha, MIXTURE_DISCORDANT)
        reach = found.deviations(z) * self.widening
        return abs(self.lead) < reach * math.sqrt(self.discordant)


def quantile_ratio(
    champion: Values, challenger: Values, q: float, alpha: float
) -> Interval | None:
    """quantile(challenger) / quantile(champion) - 1 from pairs of positive values.

    `low` is -1 and `high` infinite as long as the pairs bound them no further; None
    where not one value is beyond the quantile, or one is not positive. Example: y = 1.1
    x has the estimate 0.1.
    """
    pairs = len(champion)
    if pairs * min(q, 1 - q) < 1 or min(champion.min(), challenger.min()) <= 0:
        return None
    estimate, found = estimated(champion, challenger, q)
    why = doubt(found, pairs)
    if found is None or why:
        return open_ratio(estimate - 1, pairs, why)

    def kept(ratio: float) -> bool:
        return walk(champion, challenger / ratio, q).within(alpha, found)

    low, high = _edge(kept, estimate, 1 / _FARTHEST), _edge(kept, estimate, _FARTHEST)
    z = boundary(pairs / found.phi, alpha)
    worth = pairs * (z / found.deviations(z)) ** 2
    return Interval(estimate - 1, low - 1, high - 1, pairs, worth)


def estimated(x: Values, y: Values, q: float) -> tuple[float, Inflation | None]:
    """Return the ratio of the two quantiles, and the inflation of the walk there."""
    rank = max(0, math.ceil(q * len(x)) - 1)
    ratio = float(np.partition(y, rank)[rank] / np.partition(x, rank)[rank])
    y = y / ratio
    both = np.concatenate((x, y))
    rank = _rank(q, len(both))
    middle = np.partition(both, rank)[rank]
    # Values equal to the quantile, like those of one batch, may count as beyond it or not.
    is_tied = np.count_nonzero(both == middle) > _ALONE
    found = [
        sequence_inflation(
            beyond(y, middle).astype(np.float64) - beyond(x, middle), bounded=True
        )
        for beyond in ((np.greater, np.greater_equal) if is_tied else (np.greater,))
    ]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return ratio, None
    return ratio, max(known, key=lambda each: each.phi)


def walk(x: Values, y: Values, q: float) -> Walk:
    """Return the count at a ratio of 1."""
    both = np.concatenate((x, y))
    half = min(q, 1 - q) / 2
    ranks = [_rank(level, len(both)) for level in (q - half, q, q + half)]
    lower, middle, upper = np.partition(both, ranks)[ranks]
    x_beyond, y_beyond = x > middle, y > middle
    near_x = int(np.count_nonzero((x > lower) & (x <= upper)))
    near_y = int(np.count_nonzero((y > lower) & (y <= upper)))
    return Walk(
        float(np.count_nonzero(y_beyond)) - float(np.count_nonzero(x_beyond)),
        float(np.count_nonzero(x_beyond != y_beyond)),
        _widening(near_x, near_y),
    )


def _rank(level: float, count: int) -> int:
    return min(max(math.ceil(level * count) - 1, 0), count - 1)


def _widening(near_x: int, near_y: int) -> float:
    """sqrt(2 (1 + k^2)) / (1 + k) for densities in the ratio k at the quantile.

    The joint quantile lies nearer to that of the denser one, so that the errors of the
    two no longer weigh the same.
    """
    total = near_x + near_y
    return math.sqrt(2 * (near_x**2 + near_y**2)) / total if total else 1.0


def _edge(kept: Callable[[float], bool], inside: float, farthest: float) -> float:
    """The last ratio kept on the way to `farthest`, on a logarithmic scale."""
    step = 1.1 if farthest > inside else 1 / 1.1
    outside = inside * step
    while kept(outside):
        if not min(inside, farthest) < outside < max(inside, farthest):
            return math.inf if step > 1 else 0.0
        inside, step = outside, step * step
        outside = inside * step
    for _ in range(_HALVINGS):
        if abs(outside / inside - 1) < _SAME:
            break
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if kept(middle) else (inside, middle)
    return outside


# Jeffreys' prior: good where the share is near 0 or 1, as agreement is.
_PRIOR: Final = 0.5


def proportion(
    hits: int, pairs: int, alpha: float, phi: float = 1.0
) -> Interval | None:
    """The share of `hits` among `pairs`; None before the first pair.

    `phi` is the variance inflation of the pairs. Example: no hit in 1,000 pairs bounds the share by 0.0072 at alpha 0.05.
    """
    if not pairs:
        return None
    counts = (hits / phi, (pairs - hits) / phi)
    least = _mixture(counts) + math.log(alpha)

    def kept(share: float) -> bool:
        return _log(counts[0], share) + _log(counts[1], 1 - share) > least

    estimate = hits / pairs
    low, high = _limit(kept, estimate, 0.0), _limit(kept, estimate, 1.0)
    return Interval(estimate, low, high, pairs, pairs / phi)


def paired_difference(
    gains: int, losses: int, pairs: int, alpha: float, phi: float = 1.0
) -> Interval | None:
    """Share of pairs won less share of pairs lost; None before the first pair.

    A gain is a pair that only the challenger has right, a loss one that only the
    champion has: what McNemar's test counts. The third outcome is that both or neither
    are right, and the share of losses is profiled out, which keeps it exact. `phi` is the
    variance inflation of the pairs. Example: 10 gains and 30 losses of 1,000 have the
    estimate -0.02.
    """
    if not pairs:
        return None
    counts = (gains / phi, losses / phi, (pairs - gains - losses) / phi)
    least = _mixture(counts) + math.log(alpha)

    def kept(difference: float) -> bool:
        return _profile(*counts, difference) > least

    estimate = (gains - losses) / pairs
    low, high = _limit(kept, estimate, -1.0), _limit(kept, estimate, 1.0)
    return Interval(estimate, low, high, pairs, pairs / phi)


def _mixture(counts: Sequence[float]) -> float:
    """Log of the likelihood's mean over the Dirichlet(1/2, ...) prior."""
    total = len(counts) * _PRIOR
    return (
        math.lgamma(total)
        - math.lgamma(total + sum(counts))
        + sum(math.lgamma(n + _PRIOR) - math.lgamma(_PRIOR) for n in counts)
    )


def _profile(gains: float, losses: float, same: float, difference: float) -> float:
    """The greatest log-likelihood with that difference between the shares.

    It is concave in the share of losses, so the zero of its slope is bisected.
    """
    low, high = max(0.0, -difference), (1 - difference) / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = (
            _over(losses, middle)
            + _over(gains, middle + difference)
            - 2 * _over(same, 1 - 2 * middle - difference)
        )
        low, high = (middle, high) if slope > 0 else (low, middle)
    share = (low + high) / 2
    return (
        _log(losses, share)
        + _log(gains, share + difference)
        + _log(same, 1 - 2 * share - difference)
    )


def _log(count: float, share: float) -> float:
    """Count log(share), with 0 log 0 = 0."""
    if not count:
        return 0.0
    return count * math.log(share) if share > 0 else -math.inf


def _over(count: float, share: float) -> float:
    if not count:
        return 0.0
    return count / share if share > 0 else math.inf


def _limit(kept: Callable[[float], bool], inside: float, end: float) -> float:
    """Return the boundary of what is kept, between `inside` and `end`; `end` if all is."""
    if kept(end):
        return end
    outside = end
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if kept(middle) else (inside, middle)
    return outside


def without_missing(
    interval: Interval, champion: float, challenger: float, tolerated: float
) -> Interval:
    """Open the end that speaks for a side which was busy in more than a tolerated share."""
    for side, share in (("champion", champion), ("challenger", challenger)):
        if share > tolerated:
            why = f"the {side} was still busy when {share:.2%} of the pairs were due"
            low = -1.0 if side == "champion" else interval.low
            high = math.inf if side == "challenger" else interval.high
            interval = replace(
                interval, low=low, high=high, withheld=interval.withheld or why
            )
    return interval
