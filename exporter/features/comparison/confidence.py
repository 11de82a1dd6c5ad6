"""Intervals that hold at all times at once, for means and variances; verdicts from them.

A confidence sequence is an interval after every pair such that the truth is in all of
them with probability 1 - alpha; it may be looked at after every pair and acted upon
whenever one likes (Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 2021). No
I/O, no clock, no scipy.

Two kinds are used. What is bounded gets an exact one. Latency is not, and its ratios get
a self-normalised normal mixture, as good as the central limit theorem (Waudby-Smith,
Arbour, Sinha, Kennedy and Ramdas, Annals of Statistics 2024).

A random order within the pair removes what slows both models at once. It does not remove
the slow spells of one model alone, which make pairs correlated. So the boundary is
widened by what `drift.numerics.dependence` measures in the pairs' own order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from drift.numerics.dependence import (
    LEAST_BATCHES,
    LEAST_FREEDOM,
    Inflation,
    sequence_inflation,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    from exporter.features.comparison.comparison_settings import Metric

WARM_UP_PAIRS: Final = 50
"""Pairs below which a mean or variance has no interval: their limit is not reached."""
LEAST_PAIRS: Final = 200
"""Pairs below which a quantile has no interval: all of them may fall into one slow spell
that began before the comparison, and then they do not vary.
"""
LEAST_REQUESTS: Final = 2_000
"""Requests to each below which a mean has no interval: stalls that hit one request in 500
would go unseen in 1.8 % of comparisons, 0.998^2000.
"""
MIXTURE_PAIRS: Final = 100.0
"""The boundary is tightest at eight times as many pairs: many are cheap to ask for."""
MIXTURE_WINDOWS: Final = 20.0
"""Of windows there are 50 to 256, and correlated ones are worth fewer: boundaries of pairs
would leave them undecided although all of them agree."""
# The exponent of the empirical-Bernstein bets, as its authors choose it.
_MOST_BET: Final = 0.5
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """An effect as known now: `low` <= `estimate` <= `high`, ends possibly infinite."""

    estimate: float
    low: float
    high: float
    pairs: int
    effective_pairs: float | None = None
    """Number of independent pairs that give as wide an interval; None: all of them."""
    withheld: str = ""
    """Reason why an end is open although there are pairs; "" where none is."""

    @property
    def worth(self) -> float:
        """Return how many independent pairs would give as wide an interval."""
        return self.pairs if self.effective_pairs is None else self.effective_pairs


def unseen_stalls(requests: float) -> str:
    """Return why means cannot be compared after `requests` to each; "" if they can."""
    if requests >= LEAST_REQUESTS:
        return ""
    return (
        f"{requests:.0f} of {LEAST_REQUESTS:,} requests to each: fewer would miss rare "
        "stalls, which a mean is made of"
    )


def open_ratio(estimate: float, pairs: int, why: str) -> Interval:
    """An interval of a ratio less 1 that claims nothing."""
    return Interval(estimate, -1.0, math.inf, pairs, 0.0, why)


def doubt(found: Inflation | None, pairs: int) -> str:
    """Return why no interval can be claimed with this inflation; "" if one can."""
    if found is None and pairs < LEAST_BATCHES:
        return f"{pairs} of at least {LEAST_BATCHES} pairs"
    if found is None:
        return (
            f"correlated over more than a {LEAST_BATCHES}th of the {pairs} pairs so far"
        )
    few = found.freedom < LEAST_FREEDOM
    return "a few extreme values make up the variance so far" if few else ""


def boundary(information: float, alpha: float, mixture: float = MIXTURE_PAIRS) -> float:
    """Return how many standard deviations a fair walk stays within, at all times at once.

    z(v) = sqrt((1 + m/v) log((1 + v/m) / alpha^2)): the two-sided normal mixture of
    Robbins (1970), eq. 14 of Howard et al. (2021), divided by sqrt(v). It is least, and
    within 9 % of what one look at 80 % power needs in effect size, where v is 8 m, and
    grows like sqrt(log v) from there.
    """
    if information <= 0:
        return math.inf
    share = mixture / information
    return math.sqrt((1 + share) * (math.log1p(1 / share) - 2 * math.log(alpha)))


def from_zero(reach: float, count: int) -> float:
    """Return the boundary of sum(s) / sqrt(sum(s^2)) for that of Student's statistic of s.

    Student's takes the squares from the mean and not from zero: c^2 = r^2 / (1 + r^2 / n)
    for its boundary r. The difference matters for few values that all agree: from zero
    the statistic cannot exceed sqrt(n). Example: r = 6 of n = 36 values is 4.24.
    """
    return reach / math.sqrt(1.0 + reach * reach / count) if reach < math.inf else reach


def mean_ratio(
    champion: Values, challenger: Values, alpha: float, mixture: float = MIXTURE_PAIRS
) -> Interval | None:
    """mean(challenger) / mean(champion) - 1 from pairs; None before the warm-up.

    For each ratio r the walk of y - r x is tested against zero; those not rejected are
    the interval (Fieller 1954), here the roots of a quadratic. Its variance inflation is
    that of the walk at the estimate. Not for means that may be zero. Example: x = [2, 4],
    y = [3, 6] has the estimate 0.5.
    """
    count = len(champion)
    total = float(champion.sum())
    if count < WARM_UP_PAIRS or total <= 0:
        return None
    ratio = float(challenger.sum()) / total
    steps = challenger - ratio * champion
    if np.abs(steps).max() <= _ROUNDING * np.abs(challenger).max():
        steps = np.zeros(count)
    found = sequence_inflation(steps)
    why = doubt(found, count)
    if found is None or why:
        return open_ratio(ratio - 1.0, count, why)
    z = boundary(count / found.phi, alpha, mixture)
    return _ratio(champion, challenger, z, found.deviations(z))


def variance_ratio(
    champion: Values, challenger: Values, alpha: float
) -> Interval | None:
    """var(challenger) / var(champion) - 1 from pairs; None before the warm-up.

    The ratio of the means of squared deviations; that these are taken from the sample's
    own mean is of second order. Heavy tails make it wide, as they should.
    """
    if len(champion) < WARM_UP_PAIRS:
        return None
    return mean_ratio(
        (champion - champion.mean()) ** 2, (challenger - challenger.mean()) ** 2, alpha
    )


def _ratio(x: Values, y: Values, z: float, reach: float) -> Interval:
    """Every r at which Student's statistic of y - r x is within `reach`, less 1."""
    count, sum_x, sum_y = len(x), float(x.sum()), float(y.sum())
    square = from_zero(reach, count) ** 2
    a = sum_x * sum_x - square * float(x @ x)
    b = sum_x * sum_y - square * float(x @ y)
    c = sum_y * sum_y - square * float(y @ y)
    estimate = sum_y / sum_x - 1
    worth = count * (z / reach) ** 2
    if a <= 0:
        # The champion's mean may still be zero: any ratio is possible.
        return Interval(estimate, -1.0, math.inf, count, worth)
    # The estimate is inside: only rounding makes the root negative, or misses it.
    spread = math.sqrt(max(b * b - a * c, 0.0))
    low, high = max((b - spread) / a, 0.0) - 1, (b + spread) / a - 1
    return Interval(estimate, min(low, estimate), max(high, estimate), count, worth)


class BoundedMean:
    """The mean of values in [0, 1]: an exact confidence sequence in constant memory.

    The predictable plug-in empirical-Bernstein sequence (Waudby-Smith and Ramdas, JRSS B
    2024, theorem 2): bets sized by the variance so far, so that the interval of values
    that hardly vary closes like 1/n. Example: 1,000 zeros at alpha 0.05 bound the mean
    by 0.015. Not for values whose bound is unknown.
    """

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self.count = 0
        self._sum = 0.0
        self._squares = 0.25
        self._bets = 0.0
        self._won = 0.0
        self._penalty = 0.0

    def add(self, value: float) -> None:
        """Add one value.

        Raises:
            ValueError: it is not in [0, 1].
        """
        if not 0 <= value <= 1:
            raise ValueError(f"found {value!r}; want a value in [0, 1]")
        number = self.count + 1
        before = (0.5 + self._sum) / number
        variance = self._squares / number
        bet = min(
            math.sqrt(
                2 * math.log(2 / self._alpha) / (variance * number * math.log1p(number))
            ),
            _MOST_BET,
        )
        self._bets += bet
        self._won += bet * value
        self._penalty += (value - before) ** 2 * (-math.log1p(-bet) - bet)
        self.count, self._sum = number, self._sum + value
        after = (0.5 + self._sum) / (number + 1)
        self._squares += (value - after) ** 2

    @property
    def interval(self) -> Interval | None:
        """Return the interval of the mean; None before the first value."""
        if not self.count:
            return None
        centre = self._won / self._bets
        half = (math.log(2 / self._alpha) + self._penalty) / self._bets
        mean = self._sum / self.count
        low, high = max(0.0, centre - half), min(1.0, centre + half)
        # The weighted centre and the plain mean differ a little; report the mean.
        return Interval(min(max(mean, low), high), low, high, self.count)


Verdict = Literal["better", "worse", "equivalent", "undecided"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
MORE_IS_BETTER: Final[frozenset[Metric]] = frozenset(
    {"agreement", "accuracy", "success"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The current state of one metric: the challenger's effect and its margin."""

    metric: Metric
    interval: Interval
    margin: float

    @property
    def loss(self) -> tuple[float, float]:
        """(low, high) of how much worse the challenger is."""
        low, high = self.interval.low, self.interval.high
        return (-high, -low) if self.metric in MORE_IS_BETTER else (low, high)

    @property
    def verdict(self) -> Verdict:
        """`worse` and `better` are beyond the margin, `equivalent` is within it."""
        low, high = self.loss
        if low > self.margin:
            return "worse"
        if high < -self.margin:
            return "better"
        if -self.margin <= low and high <= self.margin:
            return "equivalent"
        return "undecided"

    @property
    def passes(self) -> bool:
        """Return whether the challenger is surely not worse by more than the margin."""
        return self.loss[1] <= self.margin
