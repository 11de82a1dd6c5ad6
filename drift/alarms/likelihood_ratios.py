"""Log likelihood ratios "the rows since k follow another law" against "the same law".

`before` and `after` are sums over rows before and since each start, arrays whose first
axis is the starts. All return log ratios of shape (starts, features), mixed over the
sizes of change they test for. Sums are divided by the overdispersion first: n dependent
rows count as n / phi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.projection import Projection, Scores

    Floats = NDArray[np.float64]

SHIFTS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
EXCESS: Final = (0.0005, 0.002, 0.008, 0.03, 0.1, 0.4)
FACTORS: Final = (1.25, 1.6, 2.5)
CONCENTRATIONS: Final = (16.0, 200.0, 2000.0)

SLACK: Final = 2.0
"""Odds of a share that are this much beyond all that was shown are still within it."""
_NOTHING: Final = -700.0
_EXTRA_MARGIN_LIMIT: Final = 0.999


@dataclass(frozen=True, slots=True)
class Tilts:
    """Exponential moments of the scores, relative to those of a normal law.

    `up` and `down` are 2 psi(s) / s^2 at s = +shift and -shift, at least 1, of shape
    (features, len(SHIFTS)), with psi the reference's cumulant generating function.
    """

    up: Floats
    down: Floats


def tilts(
    scores: Floats | Scores, cells: NDArray[np.int64] | NDArray[np.uint32]
) -> Tilts:
    """Exponential moments of standardised `scores` (features, cells) under `cells`.

    With few rows a moment is only known up to what was seen; it is never below the
    normal law's.
    """
    share = cells / np.maximum(cells.sum(axis=1, keepdims=True), 1)

    def ratio(shift: float) -> Floats:
        exponent = np.multiply(shift, scores, dtype=np.float64)
        moment = (share * np.exp(np.clip(exponent, -700.0, 700.0))).sum(axis=1)
        safe = np.where(moment > 0, moment, 1.0)
        return np.maximum(2.0 * np.log(safe) / shift**2, 1.0)

    return Tilts(
        np.stack([ratio(shift) for shift in SHIFTS], axis=1),
        np.stack([ratio(-shift) for shift in SHIFTS], axis=1),
    )


def score_tilts(
    projection: Projection, cells: NDArray[np.int64] | NDArray[np.uint32]
) -> tuple[Tilts, Tilts]:
    """Return the moments of location and scale scores under the reference counts."""
    inside = np.where(projection.bins < projection.used[:, None], cells, 0)
    return tilts(projection.location, inside), tilts(projection.scale, inside)


def of_mean(
    before: tuple[Floats, Floats],
    after: tuple[Floats, Floats],
    tilt: Tilts,
    *,
    margin: float = 0.0,
    largest: Floats | float = np.inf,
) -> Floats:
    """A shift of a standardised score's mean by more than `margin`, either way.

    Each side is (number, sum). With m = n_b n_a / (n_b + n_a) and D the difference of
    the means, D ~ N(0, 1/m) while nothing changes whatever the common mean is, and

        log LR_s = s m (|D| - margin) - s^2 m kappa / 2

    is mixed over shifts s of both signs. kappa is 1 for normal scores and follows from
    the reference's exponential moments otherwise. Shifts up by more than `largest`
    (features,) are left out, but for the smallest.
    """
    n_b, n_a = before[0][..., None], after[0][..., None]
    both = np.maximum(n_b + n_a, 1e-300)
    effective = n_b * n_a / both
    mean_a = after[1][..., None] / np.maximum(n_a, 1e-300)
    mean_b = before[1][..., None] / np.maximum(n_b, 1e-300)
    difference = np.where(effective > 0, mean_a - mean_b, 0.0)
    share = n_b / both
    shift = np.array(SHIFTS)
    half = 0.5 * shift**2 * effective
    up = half * (share * tilt.up + (1.0 - share) * tilt.down)
    down = half * (share * tilt.down + (1.0 - share) * tilt.up)
    gain = shift * effective
    above = gain * (difference - margin) - up
    most = np.expand_dims(np.maximum(largest, SHIFTS[0]), -1)
    above = np.where(shift > most, _NOTHING, above)
    ratios = np.concatenate((above, gain * (-difference - margin) - down), axis=-1)
    return log_mean(ratios)


def of_shape(
    before: Floats,
    after: Floats,
    used: NDArray[np.int64],
    *,
    half: Floats | float = 0.5,
    margin: float = 0.0,
) -> Floats:
    """Another distribution over coarse bins; sides are (starts, features, bins).

    Predictive Dirichlet-multinomial probability of the new counts, with a prior around
    the shares before of concentration c (mixed over a few), over the one that continues
    from the counts before:

        LR = DM(after; c p) / DM(after; 1/2 + before),  p = (1/2 + before) / total.

    `half` is half a row in the unit of `before`, 1 / (2 phi) of dependent ones. "Another"
    is never nearer to the shares before than "the same".

    A `margin` in standard deviations lets the shares differ from those before by about
    as much as that shift would move them: they then count as at most 1 / margin^2 rows.

    Reference: Good (1967), "A Bayesian significance test for multinomial distributions".
    """
    bins = np.arange(before.shape[-1])
    valid = bins < used[:, None]
    posterior = np.where(valid, before + half, 0.0)
    total = posterior.sum(axis=-1, keepdims=True)
    if margin > 0:
        posterior *= np.minimum(1.0, 1.0 / (margin**2 * np.maximum(total, 1.0)))
        total = posterior.sum(axis=-1, keepdims=True)
    share = posterior / np.maximum(total, 1e-300)
    widest = 0.25 * total
    same = _dirichlet_multinomial(posterior, after)
    other = np.stack(
        [
            _dirichlet_multinomial(np.minimum(c, widest) * share, after)
            for c in CONCENTRATIONS
        ],
        axis=-1,
    )
    ratio = log_mean(other - same[..., None])
    return np.where(used > 1, ratio, 0.0)


def _dirichlet_multinomial(alpha: Floats, counts: Floats) -> Floats:
    from scipy.special import gammaln  # noqa: PLC0415 - 0.1 s, not at import

    safe = np.where(alpha > 0, alpha, 1.0)
    inside = np.where(alpha > 0, counts, 0.0)
    terms = gammaln(safe + inside) - gammaln(safe)
    total = np.where(alpha > 0, alpha, 0.0).sum(axis=-1)
    total = np.where(total > 0, total, 1.0)
    number = inside.sum(axis=-1)
    return np.asarray(terms.sum(axis=-1) - gammaln(total + number) + gammaln(total))


def of_rate(
    before: tuple[Floats, Floats], after: tuple[Floats, Floats], *, margin: float = 0.0
) -> Floats:
    """More events than before; sides are (trials, events), of any one shape.

    Binomial probability of the new events at raised rates (the old one times
    `FACTORS`, or plus `EXCESS`) over their beta-binomial probability given the events
    before. One-sided, so that features which never fail do not drift upward.
    """
    from scipy.special import betaln  # noqa: PLC0415 - 0.1 s, not at import

    n_b, k_b = before
    n_a, k_a = after
    # State that an earlier version saved may have more events than values at risk.
    k_b = np.minimum(k_b, n_b)
    rate = (k_b + 1.0) / (n_b + 2.0)
    least = np.minimum(rate + margin, _EXTRA_MARGIN_LIMIT)[..., None]
    raised = np.concatenate(
        (least * np.array(FACTORS), least + (1.0 - least) * np.array(EXCESS)), axis=-1
    )
    raised = np.minimum(raised, _EXTRA_MARGIN_LIMIT)
    other = k_a[..., None] * np.log(raised) + (n_a - k_a)[..., None] * np.log1p(-raised)
    first, second = k_b + 1.0, n_b - k_b + 1.0
    same = betaln(k_a + first, n_a - k_a + second) - betaln(first, second)
    return log_mean(other - same[..., None])


def of_range(after: Floats, shown: Floats) -> Floats:
    """Shares beyond all that the reference ever showed; `after` is (starts, features, bins).

    The probability of the counts under any share (mixed by Jeffreys' prior) over the
    greatest under shares with odds of up to `SLACK` beyond the least and greatest ones in
    `shown` (features, 2, bins): on average at most 1 while the shares stay within. Where
    `shown` is NaN there is no evidence.

    Reference: Wasserman, Ramdas, Balakrishnan (2020), "Universal inference".
    """
    from scipy.special import betaln, xlogy  # noqa: PLC0415 - 0.1 s, not at import

    known = np.isfinite(shown).all(axis=1)
    if not known.any():
        return np.full(after.shape[:-1], _NOTHING)
    least, greatest = (np.where(known, shown[:, side], 0.5) for side in (0, 1))
    least = least / (least + SLACK * (1.0 - least))
    greatest = SLACK * greatest / (SLACK * greatest + 1.0 - greatest)
    number = after.sum(axis=-1, keepdims=True)
    nearest = np.clip(after / np.maximum(number, 1e-300), least, greatest)
    rest = number - after
    any_share = betaln(after + 0.5, rest + 0.5) - betaln(0.5, 0.5)
    ratio = any_share - xlogy(after, nearest) - xlogy(rest, 1.0 - nearest)
    return log_mean(np.where(known, ratio, _NOTHING))


def log_mean(values: Floats) -> Floats:
    """Log of the mean of exp along the last axis, without overflow."""
    top = values.max(axis=-1)
    return np.asarray(top + np.log(np.exp(values - top[..., None]).mean(axis=-1)))


def log_sum(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Log of the sum of exp along `axis`; minus infinity of nothing."""
    top = values.max(axis=axis, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(values - safe).sum(axis=axis))
    return np.asarray(total + np.squeeze(safe, axis=axis))
