"""Exact intervals that hold at all times, for shares of pairs that are counted.

For what has a few outcomes the likelihood is known, and its mean over a prior divided by
the likelihood of the truth is a martingale: the truth's likelihood ever falls below
alpha times that mean with probability alpha at most (Ville 1939; Robbins 1970; as the
"prior-posterior ratio" in Waudby-Smith and Ramdas, NeurIPS 2020). Exact for every count,
zero included. That is so for independent pairs. Correlated ones count as pairs / phi
with their shares, phi from `exporter.numerics.dependence`. No I/O, no clock, no scipy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from exporter.features.comparison.confidence import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Jeffreys' prior: good where the share is near 0 or 1, as agreement is.
_PRIOR: Final = 0.5
_HALVINGS: Final = 50


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
    low, high = _edge(kept, estimate, 0.0), _edge(kept, estimate, 1.0)
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
    low, high = _edge(kept, estimate, -1.0), _edge(kept, estimate, 1.0)
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


def _edge(kept: Callable[[float], bool], inside: float, end: float) -> float:
    """Return the boundary of what is kept, between `inside` and `end`; `end` if all is."""
    if kept(end):
        return end
    outside = end
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if kept(middle) else (inside, middle)
    return outside
